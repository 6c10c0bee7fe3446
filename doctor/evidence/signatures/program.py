"""Lines in which the program or torch's own checks say what went wrong, or what a rank was doing."""

from __future__ import annotations

_NUMBER_WORDS = r"(?:\w*loss|grad\w*[ _]?norms?|perplexity|ppl|grad\w*|logits|weights?|values?)"
_NONFINITE = (
    r"(?i)(?:rank:? (?P<rank>\d+)\b[^\n]{0,120}?)?(?P<what>"
    r"(?:found|detected|encountered|returned|contains?|is)\b.{0,20}\b(?:nan|inf|non-?finite|infinite)\b.{0,80}"
    r"|non-?finite (?:\w+ )?(?:loss|grad\w*|norm|value).{0,80}"
    rf"|\b(?!best|min|prev)(?<!best )(?<!best val ){_NUMBER_WORDS}['\"]?\s*(?:is\b|[:=|])?\s*"
    r"(?:nan|[-+]?inf(?:inite)?)\b)"
)
_DIFFER = (
    r"(?:differ\w*|diverg\w*|mismatch\w*|not (?:\w+ )?match\w*|not (?:equal|identical|the same)|(?:out of|not in) sync)"
)
_BETWEEN = r"(?:ranks?|replicas?|across|data.parallel|processes|workers|groups?)"
_REPLICAS = (
    r"(?i)(?P<what>(?:\breplicas\b.{0,40}\b"
    + _DIFFER
    + r".*|\b(?:param\w*|weights?|hash\w*|checksums?|model state|buffers?)\b.{0,60}\b"
    + _DIFFER
    + r"\b.{0,60}\b(?:replicas?|ranks?|across|data.parallel|processes)\b.*))"
)
_SEEDS = (
    r"(?i)(?P<what>(?:rng|seeds?|random (?:state|number)\w*|cuda_rng\w*)\b.{0,60}\b"
    + _DIFFER
    + r"\b.{0,60}\b"
    + _BETWEEN
    + r"\b.*)"
)
_SAME_SAMPLES = (
    r"(?i)(?P<what>(?:same|identical|duplicated?) (?:data|samples?|shards?|batch\w*|indices|examples?)\b.{0,60}\b"
    r"(?:ranks?|replicas?|workers?|processes)\b.*)"
)
_WORK = (
    r"(?:checkpoint\w*|model|weights|state|sav\w+|writ\w+|compil\w+|evaluation|validation|tokeniz\w+|preprocess\w*|map)"
)
_COMPLETE = r"complete(?:d\b|\b(?! (?!in\b|after\b)[a-z]))"  # not `3 complete epochs`
_DONE = (
    rf"(?P<what>(?i:\b(?:(?:saved|finished|done)\b|{_COMPLETE}).{{0,30}}\b{_WORK}\b.{{0,80}}"
    rf"|\b{_WORK}\b.{{0,60}}\b(?:(?:saved|finished|took|done)\b|{_COMPLETE}).{{0,80}}))"
)

ROWS: list[tuple[str, str, str]] = [
    (
        "fingerprint",
        "Detected mismatch between collectives on ranks",
        r"Rank (?P<a>\d+) is running (?P<a_what>(?:inconsistent )?collective.*?), but Rank "
        r"(?P<b>\d+) is running (?P<b_what>.*)",
    ),
    (  # up to torch 1.12 each rank told its own call alone
        "fingerprint_own",
        "running inconsistent collective",
        r"Rank (?P<a>\d+) is running inconsistent collective: (?P<a_what>.*)",
    ),
    (
        "horovod_stalled",
        "issing ranks",
        r"(?P<op>\S+) \[missing ranks:\s*(?P<ranks>[\d, ]+?)\s*\]",
    ),
    ("horovod_ready", "ready ranks", r"(?P<op>\S+) \[ready ranks:\s*(?P<ranks>[\d, ]+?)\s*\]"),
    *(  # under `Stalled ranks:` a line `RANK: [OP, …]`
        ("horovod_stalled", word, r"^\[(?P<op>(?:Distributed|allreduce|allgather|broadcast)[\w./]*)")
        for word in ("[Distributed", "[allreduce", "[allgather", "[broadcast")
    ),
    (
        "xla_participant",
        "waiting for all participants",
        r"^(?=.*\bdevice[ _]ordinal[ =](?P<device>\d+))(?=.*global_devices=\[(?P<all>[\d, ]+)\])"
        r"(?=.*\bop_id=(?P<op>\d+))",
    ),
    (
        "xla_waits",
        "has been waiting for",
        r"thread has been waiting for `(?P<what>[^`;]{1,80})[^`]*` for (?P<seconds>\d+) seconds(?:.*Expected "
        r"(?P<expected>\d+) threads(?:.*only (?P<came>\d+))?)?",
    ),
    ("xla_moves_on", "Thread is unstuck", r"Thread is unstuck"),
    ("xla_barrier", "Barrier timed out", r"Barrier timed out\.(?: Id: (?P<what>[\w:.-]+))?(?P<rest>.*)"),
    ("xla_task", "/task:", r"^(?:.*timed out task names:)?\s*(?P<tasks>(?:/job:\w+/replica:\d+/task:\d+[,\s]*)+)$"),
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
    *(("nonfinite", word, _NONFINITE) for word in ("nan", "NaN", "NAN", ": inf", "=inf", " Inf", "infinite")),
    ("nonfinite", "nonfinite", _NONFINITE),
    ("nonfinite", "non-finite", _NONFINITE),
    (
        "nonfinite",
        "loss scale",
        r"(?P<what>(?:[Cc]urrent loss scale already at minimum|[Mm]inimum loss scale reached).*)",
    ),
    *(("replicas_differ", word, _REPLICAS) for word in ("differ", "iverge", "match", "out of sync", "identical")),
    *(("seeds_differ", word, _SEEDS) for word in ("RNG", "rng", "seed", "Seed", "andom")),
    (
        "not_shuffled",
        "set_epoch",
        r"(?i)(?P<what>.{0,200}set_epoch\b.{0,60}(?:not (?:been )?called|never called|forgot|missing).*"
        r"|without calling \S{0,40}set_epoch.*)",
    ),
    (
        "same_samples",
        "samples have been fetched",
        r"(?P<what>Length of IterableDataset .*samples have been fetched)",
    ),
    *(("same_samples", word, _SAME_SAMPLES) for word in ("uplicate", "same ", "dentical")),
    (
        "degree_mismatch",
        "ivisible",
        r"^(?=.*(?:not (?:evenly )?divisible|(?:must|should|has to|needs to) be (?:evenly )?divisible|divisible by))"
        r"(?P<what>.*(?:\b|_)(?:world[_ ]size|heads|experts|head|tensor|pipeline|parallel|degree|mesh).*)",
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
    ("loader_timeout", "DataLoader timed out", r"DataLoader timed out after (?P<seconds>\d+(?:\.\d+)?) seconds"),
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
    ("simple_order", "falling back to simple order", r"Could not find a path for pattern (?P<pattern>\d+)"),
    ("reclaim_failed", "commReclaim", r"commReclaim: (?P<what>.* failed in destroy/abort.*)"),
    ("blocking_env", "CUDA_LAUNCH_BLOCKING", r"(?<!passing )CUDA_LAUNCH_BLOCKING['\"]?\s?[=:]\s?['\"]?1"),
    *(("activity_done", word, _DONE) for word in ("aved", "inished", "took", "omplete", "Done ", "done ")),
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
        r"(?P<what>(?:(?:[Rr]unning|[Ss]tarting|[Bb]egin\w*) (?:evaluation|validation)|[Ee]valuating\b).{0,80})",
    ),
    (
        "activity_compile",
        "ompil",
        r"(?P<what>(?:[Cc]ompiling|[Tt]orch\.compile|[Ss]tart(?:ing)? compil|AUTOTUNE|[Aa]utotuning).{0,80})",
    ),
    ("lock_held", "acquiring lock", r"Timeout on acquiring lock (?:\d+ )?on (?P<path>\S+)"),  # filelock
    ("lock_held", "could not be acquired", r"[Ff]ile lock '(?P<path>[^']+)' could not be acquired"),
    (
        "activity_lock",
        "lock",
        r"(?P<what>(?:[Ww]aiting for|[Aa]ttempting to acquire|[Bb]locked on) (?:the |a )?(?:file )?lock\b.{0,80})",
    ),
    ("activity_data", "ownloading", r"(?P<what>[Dd]ownloading .{0,80})"),
    ("activity_data", "okeniz", r"(?P<what>(?:[Rr]unning tokenizer|[Tt]okenizing) .{0,80})"),
    ("activity_data", "reprocessing", r"(?P<what>[Pp]reprocessing .{0,80})"),
    ("activity_data", "Map", r"^(?P<what>Map(?: \([^)]*\))?: +\d+%.{0,80})"),
]
