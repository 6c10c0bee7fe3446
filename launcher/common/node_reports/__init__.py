"""Outputs of the tools that describe a node, as typed records. Standard library, pure: text in, records out."""
