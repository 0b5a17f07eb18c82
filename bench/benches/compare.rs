//! All benchmarks: `cargo bench -p tollgate-bench`. Names such as `-- layer threads` select some of the tables.

use std::{env, panic, path::Path, process};

use tollgate_bench::{machine, sections};

fn main() {
    // a thread that panics must not leave the others waiting
    panic::set_hook(Box::new(|info| {
        eprintln!("{info}");
        process::exit(101);
    }));
    let wanted: Vec<String> = env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let one = Path::new(env!("CARGO_BIN_EXE_one"));
    let server = Path::new(env!("CARGO_BIN_EXE_server"));
    println!("{}\n", machine::describe());
    let sections: [(&str, &dyn Fn()); 16] = [
        ("layer", &sections::layer::run),
        ("threads", &sections::threads::run),
        ("memory", &|| sections::memory::run(one)),
        ("alloc", &sections::alloc::run),
        ("stalls", &sections::stalls::run),
        ("server", &|| sections::server::run(one)),
        ("callgrind", &|| sections::instructions::run(one)),
        ("sessions", &sections::sessions::run),
        ("maps", &sections::maps::run),
        ("store", &sections::store::run),
        ("logins", &|| sections::logins::run(one)),
        ("steps", &|| sections::steps::run(one)),
        ("timing", &sections::timing::run),
        ("bearer", &sections::bearer::run),
        ("tokens", &|| sections::tokens::run(server)),
        ("redis", &sections::redis::run),
    ];
    for (name, section) in sections {
        if wanted.is_empty() || wanted.iter().any(|word| word == name) {
            section();
        }
    }
}
