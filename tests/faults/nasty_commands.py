"""Commands that behave as badly as commands can: none may outlive its job, hold up its worker, or print without bound.

Everything that is meant to be found, if it escapes, sleeps for `MARK` seconds.
"""

MARK = "9876543"

NASTY = {
    "leaves a child": f"sleep {MARK} &",
    "leaves many children": f"for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep {MARK} & done",
    "leaves a grandchild": f"(sh -c 'sleep {MARK} & sleep {MARK}' &)",
    "daemonizes": f"setsid sleep {MARK} >/dev/null 2>&1 < /dev/null &",
    "daemonizes twice": f"setsid sh -c 'setsid sleep {MARK} & exit' & wait",
    "daemonizes without its environment": f"env -i setsid sleep {MARK} &",
    "uses nohup": f"nohup sleep {MARK} &",
    "ignores TERM": f"trap '' TERM; sleep {MARK} & while true; do wait; done",
    "ignores everything": f"trap '' TERM INT HUP QUIT PIPE; while true; do sleep {MARK}; done",
    "its child ignores TERM": f"sh -c 'trap \"\" TERM; while true; do sleep {MARK}; done' & exec sleep {MARK}",
    "stops itself": f"sleep {MARK} & kill -STOP $$",
    "stops its group": "kill -STOP 0",
    "kills itself": "kill -KILL $$",
    "kills its group": f"sleep {MARK} & kill -KILL 0",
    "prints for ever": "yes nasty",
    "prints for ever to both": "yes out & yes err >&2",
    "prints one endless line": "tr '\\0' x < /dev/zero",
    "prints what is no text": "head -c 1000000 /dev/urandom",
    "prints NULs": "head -c 1000000 /dev/zero",
    "prints terminal codes": "printf '\\033[2J\\033]0;owned\\007'",
    "closes its output": f"exec >&- 2>&-; sleep {MARK}",
    "closes its output in a child": f"(exec >&- 2>&-; setsid sleep {MARK}) &",
    "holds the pipe open": f"sleep {MARK} & exit 0",
    "reads from nobody": f"cat; sleep {MARK}",
    "reads the terminal": "read answer < /dev/tty",
    "does not exist": "this-command-does-not-exist-anywhere",
    "is no shell": "((((",
    "leaves by exec": f"exec setsid sleep {MARK}",
    "starts from a subshell chain": f"( ( ( sleep {MARK} & ) & ) & )",
    "fails in a pipe": f"sleep {MARK} | false",
    "makes a session for each child": f"for i in 1 2 3 4 5; do setsid sh -c 'sleep {MARK}' & done; exit 7",
}
