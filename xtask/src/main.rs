//! The entry for developers, `cargo xtask`: ci, test, tidy, bench, torture, cluster, sim, fuzz,
//! mutants. It needs only cargo.

mod bench;
mod ci;
mod cluster;
mod fuzz;
mod mutants;
mod needs;
mod shell;
mod sim;
mod supply;
mod test;
mod tidy;
mod torture;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask <command>

  ci      everything that must hold before a change lands: installs what the tests need,
          then format, tidy, licences of dependencies, clippy with warnings denied, all tests,
          a part of sim and torture
  test    [--store sqlite|postgres] [FILTER...]: the end-to-end tests of the queue, with every
          daemon on this store
  tidy    the rules of the house that no compiler checks
  bench   measures Windlass beside the machine's own limits (arguments go to the benchmark;
          `cargo xtask bench --help` lists them)
  torture runs real daemons under load and faults, and checks that nothing is lost
          (`cargo xtask torture --help` lists its arguments)
  cluster runs daemons on PostgreSQL under load while servers, daemons and networks fail, and
          checks that nothing is lost (`cargo xtask cluster --help` lists its arguments)
  fuzz    [TARGET] [--seconds N]: runs one or all fuzz targets, 600 s each unless told otherwise
  mutants [PATH...]: changes the code in small ways, and names the changes that no unit test
          notices (`cargo xtask mutants --help` says which code)
  sim     runs simulated schedules with faults, each decided by its seed, and checks them
          (`cargo xtask sim --help` lists its arguments)
";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    let done = match command.as_str() {
        "ci" => ci::run(),
        "test" => test::run(&rest),
        "tidy" => tidy::run(),
        "bench" => bench::run(&rest),
        "torture" => torture::run(&rest),
        "cluster" => cluster::run(&rest),
        "fuzz" => fuzz::run(&rest),
        "mutants" => mutants::run(&rest),
        "sim" => sim::run(&rest),
        "" | "help" | "--help" | "-h" => {
            shell::say(HELP);
            return ExitCode::SUCCESS;
        }
        other => {
            shell::complain(&format!("there is no command '{other}'\n\n{HELP}"));
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            shell::complain(&format!("xtask: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
