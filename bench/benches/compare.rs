//! The one command: `cargo bench -p tollgate-bench`, or `-- layer threads …` for some of the tables.

use std::{env, path::Path};

use tollgate_bench::{machine, sections};

fn main() {
    let wanted: Vec<String> = env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let one = Path::new(env!("CARGO_BIN_EXE_one"));
    println!("{}\n", machine::describe());
    let sections: [(&str, &dyn Fn()); 4] = [
        ("layer", &sections::layer::run),
        ("threads", &sections::threads::run),
        ("alloc", &sections::alloc::run),
        ("callgrind", &|| sections::instructions::run(one)),
    ];
    for (name, section) in sections {
        if wanted.is_empty() || wanted.iter().any(|word| word == name) {
            section();
        }
    }
}
