"""Lines in which the program or torch's own checks say what went wrong, or what a rank was doing."""

from __future__ import annotations

ROWS: list[tuple[str, str, str]] = [
    (
        "fingerprint",
        "Detected mismatch between collectives on ranks",
        r"Rank (?P<a>\d+) is running (?P<a_what>(?:inconsistent )?collective.*?), but Rank "
        r"(?P<b>\d+) is running (?P<b_what>.*)",
    ),
    ("heartbeat_stuck", "got stuck for", r"watchdog.{0,40} got stuck for (?P<seconds>\d+) seconds"),
    ("heartbeat_stuck", "GIL induced hang", r"(?P<gil>Could not acquire GIL) within \d+ ms"),
    (
        "heartbeat_stuck",
        "eartbeat monitor timed out",
        r"[Hh]eartbeat monitor timed out(?:.*workMetaList_\.size\(\)=(?P<works>\d+))?",
    ),
    ("heartbeat_stuck", "no heartbeat of its watchdog", r"detected no heartbeat of its watchdog"),
    (
        "ddp_unused",
        "finished reduction in the prior iteration",
        r"(?P<error>Expected to have finished reduction in the prior iteration)",
    ),
    (
        "ddp_unused",
        "did not receive grad",
        r"Parameter (?:indices|names|at index)s? which did not receive grad for rank (?P<rank>\d+):? ?"
        r"(?P<what>.{0,200})",
    ),
    (
        "ddp_shape",
        "appears not to match",
        r"params\[(?P<index>\d+)\] in this process with sizes (?P<sizes>\[[^\]]*\]) appears not to match",
    ),
    (
        "ddp_count",
        "DDP expects same model across all ranks",
        r"Rank (?P<a>\d+) has (?P<a_count>\d+) params, while rank (?P<b>\d+) has inconsistent (?P<b_count>\d+)",
    ),
    (
        "nonfinite",
        "NaN",
        r"(?:rank (?P<rank>\d+)[^\n]*?)?(?P<what>found NaN in local grad norm|found NaN in local forward loss"
        r"|NaN or Inf found|[Ll]oss is NaN|NaN detected|encountered NaN).*",
    ),
    (
        "nonfinite",
        "nan",
        r"(?P<what>returned nan values in its|[Ll]oss (?:is|=|:) ?nan\b|'loss': nan|\"loss\": NaN|lm loss: nan"
        r"|grad norm: nan|loss: +nan)",
    ),
    ("nonfinite", "nonfinite", r"(?P<what>non-?finite (?:loss|grad\w*|norm).*)"),
    ("nonfinite", "non-finite", r"(?P<what>non-finite (?:loss|grad\w*|norm|value).*)"),
    (
        "degree_mismatch",
        "ivisible",
        r"(?P<what>(?:.*\b(?:world[_ ]size|num(?:ber of)?[_ ]"
        r"(?:attention[_ ])?heads|experts|head|tensor|pipeline|parallel|degree|mesh).*)"
        r"(?:not divisible|must be divisible|not evenly divisible|divisible by).*)",
    ),
    (
        "degree_mismatch",
        "world size",
        r"(?P<what>(?:[Mm]esh should not be bigger than default world size|product of .* "
        r"(?:!=|is not equal to|does not (?:equal|match)) .*world size|Invalid parallel dims).*)",
    ),
    ("degree_mismatch", "WORLD_SIZE", r"(?P<what>(?:Invalid parallel dims|parallel).*!= WORLD_SIZE.*)"),
    (
        "worker_killed",
        "DataLoader worker",
        r"DataLoader worker \(pid\(?s?\)?,? ?(?P<pid>[\d, ]+)\) (?:is killed by signal|exited unexpectedly)(?:: "
        r"(?P<signal>[\w ]+))?",
    ),
    ("shm_unlink", "could not unlink the shared memory file", r"could not unlink the shared memory file (?P<path>\S+)"),
    ("loader_timeout", "DataLoader timed out", r"DataLoader timed out after (?P<seconds>[\d.]+) seconds"),
    ("recompile", "torch._dynamo hit config", r"torch\._dynamo hit config\.(?P<what>\w+)"),
    (
        "store_file_lock",
        "lock",
        r"(?:[Ww]aiting for|[Cc]ould not acquire|[Ff]ailed to acquire|[Bb]locked on) (?:the )?"
        r"(?:file )?lock.{0,40}?(?P<path>/\S+)?",
    ),
    ("device_guess", "uessing device ID", r"[Gg]uessing device ID based on global rank"),
    (
        "device_guess",
        "using GPU",
        r"using GPU (?P<gpu>\d+) (?:to perform barrier )?as device used by this process is currently unknown",
    ),
    (
        "pg_not_destroyed",
        "destroy_process_group",
        r"(?:process group has NOT been destroyed|destroy_process_group\(\) was not called)",
    ),
    ("blocking_env", "CUDA_LAUNCH_BLOCKING", r"CUDA_LAUNCH_BLOCKING['\"]?\s?[=:]\s?['\"]?1"),
    (
        "activity_checkpoint",
        "heckpoint",
        r"(?i)(?P<what>(?:saving|writing|storing|uploading|start(?:ing|ed)?"
        r"(?: to)? sav\w*|flush\w*)\b.{0,80}checkpoint.{0,80}|(?:save_checkpoint|checkpoint "
        r"(?:save|saving|write)).{0,80})",
    ),
    (
        "activity_checkpoint",
        "aving",
        r"(?P<what>[Ss]aving (?:model|state|weights|optimizer|to|latest|training).{0,80})",
    ),
    (
        "activity_evaluation",
        "valuat",
        r"(?P<what>(?:[Rr]unning|[Ss]tarting|[Bb]egin\w*) (?:evaluation|validation).{0,80})",
    ),
    (
        "activity_compile",
        "ompil",
        r"(?P<what>(?:[Cc]ompiling|[Tt]orch\.compile|[Ss]tart(?:ing)? compil|AUTOTUNE|[Aa]utotuning).{0,80})",
    ),
    ("activity_data", "ownloading", r"(?P<what>[Dd]ownloading .{0,80})"),
]
