//! What many ranks on a network reach.

use anyhow::{Context, Result, anyhow};
use plotters::style::RGBColor;

use crate::{
    Cluster, Link, Messages, Options, Run, Shards, Work,
    chart::{self, Line, Panel},
    cost,
    models::{GPT2_LENGTH, Predicted, predicted},
};

const RANKS: [usize; 8] = [8, 16, 32, 64, 128, 256, 512, 1024];

/// How the ranks exchange: a column of the table, and a line of the chart.
struct Way {
    gigabits: f64,
    shards: Shards,
    hidden: bool,
    bf16: bool,
    colour: RGBColor,
}

const fn way(gigabits: f64, shards: Shards, hidden: bool, colour: RGBColor) -> Way {
    Way {
        gigabits,
        shards,
        hidden,
        bf16: false,
        colour,
    }
}

const fn way_in_bf16(gigabits: f64, colour: RGBColor) -> Way {
    Way {
        bf16: true,
        ..way(gigabits, Shards::Equal, true, colour)
    }
}

const WAYS: [Way; 10] = {
    use Shards::{Equal, Whole};
    let slow = [
        RGBColor(0xb0, 0x4a, 0x00),
        RGBColor(0xe0, 0x9a, 0x50),
        RGBColor(0x5c, 0x24, 0x00),
    ];
    let fast = [
        RGBColor(0x1f, 0x5f, 0xa8),
        RGBColor(0x6a, 0xa8, 0xe0),
        RGBColor(0x0c, 0x2c, 0x54),
    ];
    [
        way(10.0, Whole, false, slow[1]),
        way(10.0, Whole, true, slow[1]),
        way(10.0, Equal, false, slow[0]),
        way(10.0, Equal, true, slow[0]),
        way_in_bf16(10.0, slow[2]),
        way(100.0, Whole, false, fast[1]),
        way(100.0, Whole, true, fast[1]),
        way(100.0, Equal, false, fast[0]),
        way(100.0, Equal, true, fast[0]),
        way_in_bf16(100.0, fast[2]),
    ]
};

impl Way {
    fn name(&self) -> &'static str {
        match (self.shards, self.hidden) {
            (Shards::Whole, false) => "whole",
            (Shards::Whole, true) => "whole, hidden",
            (Shards::Equal, false) => "equal",
            (Shards::Equal, true) if self.bf16 => "bf16, hidden",
            (Shards::Equal, true) => "equal, hidden",
        }
    }

    /// The time of one rank alone divided by that of all.
    fn efficiency(&self, model: &Predicted, work: &Work, ranks: usize, latency: f64) -> f64 {
        let cluster = Cluster {
            ranks,
            link: Link::of_gigabits(self.gigabits, latency),
            shards: self.shards,
            bucket: cost::BUCKET,
            hidden: self.hidden,
            bf16: self.bf16,
        };
        work.alone(&model.lens) / cost::step(&model.lens, work, &cluster).seconds
    }
}

/// Prints the tables, and draws the chart of ranks with the most cores.
pub(crate) fn print(run: &Run, messages: &Messages, options: &Options) -> Result<()> {
    println!(
        "\npredicted efficiency: the time of a step of one rank alone, divided by that of a step of all\n\
         - a rank has {} sequences of {GPT2_LENGTH} tokens, and cores with {:.0} GFLOP/s each; one of them copies messages\n\
         - links are full-duplex without contention; a message takes {} us and its bytes, and an operation one to each other rank\n\
         - shards are equal parts of each parameter, as implemented for updates number by number, or whole ones; gradients are \
         exchanged behind the backward pass, or hidden in it; in bf16 they have half of the bytes, of equal parts",
        options.sequences,
        run.rate() / 1e9,
        options.latency,
    );
    let mut panels = Vec::new();
    for cores in &options.cores {
        panels.clear();
        for model in predicted() {
            let work = Work {
                compute: (model.work)(options.sequences) / (run.rate() * *cores as f64),
                update: run.update_per_parameter() / *cores as f64,
                ..run.work(messages, 0.0)
            };
            let title = format!(
                "GPT of {} parameters, {cores} cores a rank, {:.2} s alone",
                model.name,
                work.alone(&model.lens)
            );
            println!("\n{title}");
            panels.push(panel(title, &model, &work, 1e-6 * options.latency));
        }
    }
    let svg = chart::svg(&panels).map_err(|error| anyhow!("the chart cannot be drawn: {error}"))?;
    std::fs::create_dir_all(&options.out)
        .with_context(|| format!("{} cannot be made", options.out.display()))?;
    let file = options.out.join("scaling.svg");
    std::fs::write(&file, svg).with_context(|| format!("{} cannot be written", file.display()))?;
    println!("\n{} has the chart of the last two tables", file.display());
    Ok(())
}

/// Prints the table of a model, and returns its lines.
fn panel(title: String, model: &Predicted, work: &Work, latency: f64) -> Panel {
    print!("{:>6}", "ranks");
    for way in &WAYS {
        print!(" {:>15}", format!("{} Gb/s", way.gigabits));
    }
    print!("\n{:>6}", "");
    for way in &WAYS {
        print!(" {:>15}", way.name());
    }
    println!();
    let line = |way: &Way| Line {
        label: format!("{} Gb/s, {}", way.gigabits, way.name()),
        colour: way.colour,
        is_dashed: !way.hidden,
        points: Vec::new(),
    };
    let mut lines: Vec<_> = WAYS.iter().map(line).collect();
    for ranks in RANKS {
        print!("{ranks:>6}");
        for (way, line) in WAYS.iter().zip(&mut lines) {
            let efficiency = way.efficiency(model, work, ranks, latency);
            print!(" {:>14.1}%", 100.0 * efficiency);
            line.points.push((ranks, efficiency));
        }
        println!();
    }
    Panel { title, lines }
}
