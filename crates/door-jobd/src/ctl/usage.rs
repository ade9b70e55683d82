//! The text of `--help`.

pub(crate) const USAGE: &str = "\
Usage: jobctl [OPTIONS] COMMAND [ARGUMENTS]

Commands of a worker:
    list-targets                    List targets with concurrency, length and pause state.
    memory-usage                    Show the memory usage of the worker.
    poll TARGET...                  Fetch jobs of these targets.
    pause TARGET...                 Stop starting jobs of these targets.
    continue TARGET...              Resume these targets.
    set-target-concurrency TARGET N Run at most N jobs of the target at the same time.
    add-target TARGET N             Serve another target.
    remove-target TARGET            Stop serving a target, which must have no jobs.
    run-manual ID...                Run these manual jobs, wait for them, show how they ended.
    send-signal SIGNAL ID...        Send a signal, such as SIGTERM or 15, to running jobs.

Commands of a master (with --master):
    list-workers                    List workers with their targets.
    memory-usage                    Show the memory usage of the master.
    poke TARGET...                  Make all workers of these targets fetch jobs.
    pause TARGET...                 Pause these targets on all workers that serve them.
    continue TARGET...              Resume these targets on all workers that serve them.
    run-manual TARGET ID...         Run these manual jobs of one target, on any of its workers.
    send-signal SIGNAL TARGET ID... Send a signal to running jobs of one target.

Options, all before the command:
    --master             Talk to a master.
    --host HOST          Default: 127.0.0.1
    --port PORT          Default: 7080, or 7081 with --master
    --config PATH        Default: ~/.jobctl.conf
    --password           Ask for the password.
    --log-level LEVEL    error, warn, info, debug or trace. Default: warn
    --timeout SECONDS    Wait this long for an answer. Default: 30; run-manual waits for its jobs.
    --json               Print the answer as JSON; errors as {\"error\": TEXT}.
    --help               Print this.
    --version            Print the version.

The exit code is 0 if the whole request succeeded, and 1 otherwise.

The configuration file may have the keys master, host, port, password, log_level and
timeout.
";
