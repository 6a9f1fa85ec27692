//! The binary `pgsemaphore`. Its commands are in the library, module `cli`.

fn main() -> std::process::ExitCode {
    pgsemaphore::cli::main()
}
