//! The text of `--help`.

pub(crate) const USAGE: &str = "\
Usage: jobctl [OPTIONS] COMMAND [ARGUMENTS]

Commands of a worker:
    list-targets                    Targets with their concurrency, length and pause.
    memory-usage                    Memory of the worker.
    poll TARGET...                  Fetch jobs of these targets.
    pause TARGET...                 Start no more jobs of these targets.
    continue TARGET...              Start jobs of these targets again.
    set-target-concurrency TARGET N Run at most N jobs of the target at a time.
    add-target TARGET N             Serve another target.
    remove-target TARGET            Serve a target no more; it must have no jobs.
    run-manual ID...                Run these manual jobs, wait for them, show how they ended.
    send-signal SIGNAL ID...        Send a signal, such as SIGTERM or 15, to running jobs.

Commands of a master (with --master):
    list-workers                    Workers with their targets.
    memory-usage                    Memory of the master.
    poke TARGET...                  Have all workers that serve these targets fetch jobs.
    pause TARGET...                 Pause these targets on all workers that serve them.
    continue TARGET...              Continue them.
    run-manual TARGET ID...         Run these manual jobs of one target, on any of its workers.
    send-signal SIGNAL TARGET ID... Send a signal to running jobs of one target.

Options, all before the command:
    --master             Speak to a master.
    --host HOST          Default: 127.0.0.1
    --port PORT          Default: 7080, or 7081 with --master
    --config PATH        Default: ~/.jobctl.conf
    --password           Ask for the password.
    --log-level LEVEL    error, warn, info, debug or trace. Default: warn
    --timeout SECONDS    Wait this long for an answer. Default: 30; run-manual waits for its jobs.
    --json               Print the answer as JSON; errors as {\"error\": TEXT}.
    --help               Print this.
    --version            Print the version.

The exit code is 0 when everything that was asked for happened, and 1 otherwise.

The configuration file may have the keys master, host, port, password, log_level and
timeout.
";
