"""`dlaunch plan`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from launcher.cli.options import AMOUNT, cluster_option, inventory_option, json_option
from launcher.console import print_json
from launcher.errors import InputError, suggestion

if TYPE_CHECKING:
    from launcher.planner.request import Plan

COUNT = click.IntRange(1)


@click.command()
@click.option(
    "--params", type=AMOUNT, metavar="N", help="Parameters, e.g. 7e9; with --experts those of the dense model."
)
@click.option("--layers", type=COUNT, metavar="N", help="With --params: number of layers.")
@click.option("--hidden", type=COUNT, metavar="N", help="With --params: width of the model.")
@click.option("--heads", type=COUNT, metavar="N", help="With --params: attention heads; default: hidden / 128.")
@click.option("--vocab", type=COUNT, metavar="N", help="With --params: size of the vocabulary.")
@click.option("--experts", type=COUNT, metavar="N", help="Experts in place of every feed-forward.")
@click.option("--top-k", type=COUNT, metavar="N", help="Experts that each token takes; default: 2.")
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="config.json of a Hugging Face model.")
@click.option("--preset", metavar="NAME", help="A model of the bundled workloads, e.g. 8B.")
@click.option("--batch", type=COUNT, metavar="N", help="Sequences per step over all devices; default: one a device.")
@click.option("--seq", type=COUNT, default=4096, show_default=True, metavar="N", help="Tokens per sequence.")
@click.option("--profile", type=click.Choice(["classic", "fsdp2"]), default="fsdp2", help="How precision is mixed.")
@cluster_option
@inventory_option
@click.option("--nodes", type=COUNT, metavar="N", help="Nodes to plan for.")
@click.option("--devices-per-node", type=COUNT, metavar="N", help="Devices of each node; default: 8, or those found.")
@click.option("--device-type", metavar="TYPE", help="E.g. h100-80g; without --cluster no inventory is read.")
@click.option("--device-gb", type=AMOUNT, metavar="GB", help="Memory of a device, instead of its type's.")
@click.option("--tflops", type=AMOUNT, metavar="T", help="TFLOP/s that a device reaches, instead of half its peak.")
@click.option("--nics-per-node", type=COUNT, metavar="N", help="NICs that carry traffic between nodes.")
@click.option("--nic-gbps", type=AMOUNT, metavar="GBIT", help="Gbit/s of one NIC; default: 400, or as found.")
@click.option("--write-gbytes", type=AMOUNT, default=2.0, metavar="GB", help="GB/s to the checkpoints' storage.")
@click.option("--what-if", metavar="OPTION=VALUE,…", help="Plan again so, e.g. device-type=h200-141g,nodes=16.")
@json_option
@click.pass_context
def plan(ctx: click.Context, /, what_if: str | None, as_json: bool, **options: Any) -> None:
    """Which parallelism: memory per device, traffic, step time, efficiency, and why.

    Example: dlaunch plan --params 7e9 --layers 32 --hidden 4096 --batch 32 --nodes 4 --device-type h100-80g
    """
    from launcher.planner.request import PlanRequest, planned

    plans = [planned(PlanRequest(**options))]
    if what_if:
        plans.append(planned(PlanRequest(**{**options, **changes(ctx, what_if, options)})))
    print_json(document(plans, what_if)) if as_json else show(plans, what_if)


def changes(ctx: click.Context, text: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """`nodes=16,device-type=h200-141g` -> new values of such `options`. Raises InputError."""
    known = {each.opts[0].removeprefix("--"): each for each in ctx.command.params if each.name in options}
    found = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if name not in known or not equals:
            raise InputError(f"{part!r} is not OPTION=VALUE{suggestion(name, known)}", where="--what-if")
        found[known[name].name or name] = known[name].type_cast_value(ctx, value)
    return found


def document(plans: list[Plan], what_if: str | None) -> dict[str, Any]:
    """The first plan; the one for other circumstances stands in it under `what_if`."""
    answer = plans[0].to_json()
    return {**answer, "what_if": {"changes": what_if, **plans[1].to_json()}} if what_if else answer


def show(plans: list[Plan], what_if: str | None) -> None:
    from launcher.common.text import printable
    from launcher.planner.show import lines

    for title, each in zip(("", f"\nwhat if {what_if}:\n"), plans, strict=False):
        click.echo(title + printable("\n".join(lines(each))))
