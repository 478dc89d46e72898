//! The reports: what they say, that nothing from outside becomes markup, and how the page looks in a real browser.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod browser;
mod fixture;
mod layout;

use browser::{Area, Browser, Picture};
use layout::{Layout, layouts};
use tidegate_bench::compare::summarise;
use tidegate_bench::record::{Comparison, Note, NoteKind, Run, Settled};
use tidegate_bench::report::{html, markdown, run_html, run_markdown};

const PHONE: u32 = 360;
const LARGER_PHONE: u32 = 390;
const DESK: u32 = 1200;
const PAPER: [u8; 3] = [0xff, 0xff, 0xff];
const INK: [u8; 3] = [0x1d, 0x23, 0x29];
/// The colours of the first four brokers, as `page.css` has them.
const COLOURS: [[u8; 3]; 4] =
    [[0x00, 0x68, 0xa8], [0xc6, 0x53, 0x00], [0x00, 0x80, 0x5d], [0xa6, 0x4a, 0x86]];

/// What would run or break the page if it were not escaped, and is too long for a phone.
const HOSTILE: &str = "</title></pre></style><script>document.body.remove()</script><img src=x onerror=\"document.body.remove()\">'\"&lt;|\n|`]*__wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww";

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    for page in [html(&fixture::comparison()), run_html(&fixture::run())] {
        for outside in ["<script", "<link", "src=", "href=", "url(", "@import", "http:", "https:"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}

#[test]
fn losses_errors_and_limits_are_said_in_words() {
    let comparison = fixture::comparison();
    for report in [html(&comparison), markdown(&comparison)] {
        for words in [
            "emqx did not take part",
            "lost 87.1% (1,359,000 of 1,560,000)",
            "1 of them cut short",
            "the broker closed 4 of 9 connections",
            "Generator limited",
            "Machine saturated",
            "late by more than 10 ms for 3%",
        ] {
            assert!(report.contains(words), "{words}");
        }
    }
    for report in [run_html(&fixture::run()), run_markdown(&fixture::run())] {
        assert!(report.contains("Lost 87.1% (434,880 of 499,200)"));
    }
}

#[test]
fn what_could_not_be_measured_is_said_where_the_figure_would_stand() {
    let mut comparison = fixture::comparison();
    for (settled, words) in [(Settled::NotMeasurable, "not measurable"), (Settled::Never, "never")] {
        let mut run = fixture::run();
        run.control.settled = Some(settled);
        assert!(
            run_html(&run).contains(&format!("<th scope=\"row\">Time to settle, s</th><td>{words}</td>"))
        );
        assert!(run_markdown(&run).contains(&format!("| Time to settle, s | {words} |")));
        comparison.scenarios[0].brokers[1].runs[0].control.settled = Some(settled);
        let page = html(&comparison);
        let (_, row) = page.split_once("Time to settle").unwrap();
        let cell = row.split("<td data-of=\"mosquitto\">").nth(1).unwrap().split("</td>").next().unwrap();
        assert!(cell.contains(words), "{cell}");
        comparison.scenarios[0].brokers[0].broker.variant = "base".to_owned();
        let table = markdown(&comparison);
        let row = table.lines().find(|line| line.starts_with("| time to settle")).unwrap();
        assert!(row.contains(words), "{row}");
    }
}

#[test]
fn what_was_drained_is_said_of_each_broker() {
    let mut comparison = fixture::comparison();
    let result = &mut comparison.scenarios[0].brokers[3];
    for run in &mut result.runs {
        (run.error, run.duration, run.drain_seconds) = (None, 10.0, 3.25);
        run.intervals.last_mut().unwrap().delivered = 4321;
    }
    result.measures = summarise(&result.runs, None);
    let row =
        |page: &str, name: &str| page.split_once(name).unwrap().1.split("</tr>").next().unwrap().to_owned();
    let page = html(&comparison);
    assert!(page.contains("waiting at the end, drained in 3.25 s</span>"));
    assert!(
        row(&page, "Delivered afterwards")
            .contains("<td data-of=\"rumqttd\"><span class=\"cell\"><b>4,320</b>")
    );
    assert!(row(&page, "Waiting afterwards").contains("<b>3.25</b>"));
    comparison.scenarios[0].brokers[3].runs[1].totals.undelivered = 1;
    assert!(html(&comparison).contains("waiting at the end, not drained</span>"));
    let run = &comparison.scenarios[0].brokers[3].runs[1];
    let words = "4,321 in 3.25 s, and not all of it";
    assert!(row(&run_html(run), "Delivered afterwards").contains(words));
    assert!(run_markdown(run).contains(&format!("| Delivered afterwards | {words} |")));
}

#[test]
fn the_first_broker_is_shown_no_better_than_it_was() {
    let mut comparison = fixture::comparison();
    comparison.scenarios.truncate(1);
    let mut sound = comparison.clone();
    for run in sound.scenarios[0].brokers.iter_mut().flat_map(|result| &mut result.runs) {
        run.notes.clear();
    }
    assert!(html(&sound).contains("×, worse</span>"), "with sound runs a difference is claimed");
    let first = &mut comparison.scenarios[0].brokers[0];
    first.runs[0].totals.lost = 1000;
    let text = "2 deliveries were still owed".to_owned();
    first.runs[1].notes.push(Note { kind: NoteKind::Check, text });
    first.runs[2].error = Some("the gateway closed its connections".to_owned());
    first.measures = summarise(&first.runs, None);
    let page = html(&comparison);
    let (_, table) = page.split_once("<caption>").unwrap();
    let cell = table.split("<td data-of=\"tidegate\">").nth(1).unwrap().split("</td>").next().unwrap();
    assert!(cell.contains("class=\"bad\">lost 0.008"), "{cell}");
    assert!(cell.contains("generator limited in 1 of 3 runs"), "{cell}");
    for claim in ["better</span>", "worse</span>"] {
        assert!(!page.contains(claim), "nothing is claimed on such ground");
    }
    let row = markdown(&comparison).lines().find(|line| line.starts_with("| tidegate")).unwrap().to_owned();
    for words in [
        "**In 3 runs: lost",
        "1 of them cut short",
        "not everything could be checked",
        "generator limited in 1 of 3",
    ] {
        assert!(row.contains(words), "{words}: {row}");
    }
    for report in [page, markdown(&comparison)] {
        for words in ["still owed", "the gateway closed its connections"] {
            assert!(report.contains(words), "{words}");
        }
    }
}

#[test]
fn a_broker_keeps_its_colour_when_another_one_is_not_there() {
    let mut comparison = fixture::comparison();
    // nats, the third, can't run the first scenario
    comparison.scenarios[0].brokers.remove(2);
    let page = html(&comparison);
    let order = ["tidegate", "mosquitto", "nats", "rumqttd"];
    let heads: String = order.iter().map(|name| format!("<th scope=\"col\">{name}</th>")).collect();
    assert!(page.contains(&format!("Scenario</th>{heads}")), "the order is that of all");
    for part in page.split("<h2>").filter(|part| part.starts_with("flood")) {
        assert!(part.contains("fill f3") && !part.contains("fill f2"), "its bar");
        assert!(part.contains("line s3") && part.contains("mark f3"), "its line");
        assert!(!part.contains("mark f2"), "no mark of one that is not there");
    }
}

#[test]
fn a_comparison_that_was_interrupted_says_so_first() {
    let unfinished = Some("interrupted: 3 of 24 runs were made".to_owned());
    let comparison = Comparison { unfinished, ..fixture::comparison() };
    assert!(markdown(&comparison).starts_with("**Not finished**: interrupted: 3 of 24"));
    assert!(html(&comparison).contains("<li><b>Not finished.</b> Interrupted: 3 of 24 runs were made."));
}

#[test]
fn nothing_makes_a_report_too() {
    for report in [html(&Comparison::default()), run_html(&Run::default())] {
        assert!(report.ends_with("</html>\n") && !report.contains("NaN"));
    }
    assert!(!markdown(&Comparison::default()).contains("NaN"));
    assert!(run_markdown(&Run::default()).contains("Nothing was sent"));
}

#[test]
fn words_from_outside_stay_in_their_cell() {
    for text in [markdown(&hostile()), run_markdown(&hostile_run())] {
        assert!(!text.contains("<script") && !text.contains("<img"));
        // a bar that is not escaped would make one column more
        for table in text.split("\n\n").filter(|part| part.starts_with("| ")) {
            let columns = |line: &str| line.replace("\\|", "").matches('|').count();
            let first = columns(table.lines().next().unwrap());
            assert!(table.lines().all(|line| columns(line) == first), "{table}");
        }
    }
}

#[test]
fn the_page_fits_and_shows_what_was_measured_in_a_real_browser() {
    let browser = Browser::new();
    let page = html(&fixture::comparison());
    let (single, bad, bad_single) = (run_html(&fixture::run()), html(&hostile()), run_html(&hostile_run()));
    let pages = [
        (&*page, PHONE),
        (&*page, DESK),
        (&*single, PHONE),
        (&*single, DESK),
        (&*bad, PHONE),
        (&*bad_single, PHONE),
        (&*page, LARGER_PHONE),
        (&*single, LARGER_PHONE),
    ];
    let found = layouts(&browser, &pages);
    for (layout, (_, width)) in found.iter().zip(pages) {
        assert_eq!(layout.width, f64::from(width));
        assert!(layout.full_width <= layout.width, "scrolls to {}: {:?}", layout.full_width, layout.beyond);
        assert!(layout.beyond.is_empty(), "beyond the edge at {width}: {:?}", layout.beyond);
        assert_eq!(layout.active, 0, "something from outside became markup");
        assert!(layout.least_text >= 9.0, "text of {} pixels at {width}", layout.least_text);
    }
    assert!(found[4].text.contains("<script>document.body.remove()"), "what is hostile is shown as text");
    assert!(found[0].text.contains("lost 87.1%"));

    for layout in &found[..2] {
        let picture = browser.picture(&page, layout.width as u32, layout.full_height as u32);
        assert_eq!((picture.width, picture.height), (layout.width as usize, layout.full_height as usize));
        check_picture(&picture, layout);
    }
    check_print(&browser.print(&page));
}

/// It has paper and ink, and the plots of both scenarios have the lines of all brokers where they should be.
fn check_picture(picture: &Picture, layout: &Layout) {
    let all = picture.width * picture.height;
    assert!(picture.places(picture.area(), PAPER).len() > all / 2);
    assert!(picture.places(picture.area(), INK).len() > 1000);
    let titles: Vec<&str> = layout.plots.iter().map(|(title, _)| title.as_str()).collect();
    let expected = ["Delivered", "Delivered", "Accepted", "Waiting", "Delay p99", "Latency"];
    assert_eq!(titles, expected.repeat(2));
    for (title, area) in &layout.plots {
        for colour in COLOURS {
            let places = picture.places(*area, colour).len();
            assert!(places > 20, "{title} at {area:?} has {places} pixels of {colour:?}");
        }
    }
    let header = Area { x: 0.0, y: 0.0, width: layout.width, height: 200.0 };
    assert!(COLOURS.iter().all(|colour| picture.places(header, *colour).is_empty()), "colours only in plots");
    check_heights(picture, layout);
}

/// In the first scenario the first broker delivers most and the second one least.
fn check_heights(picture: &Picture, layout: &Layout) {
    let bars = layout.plots[0].1;
    let width = |colour| {
        let xs: Vec<usize> = picture.places(bars, colour).into_iter().map(|(x, _)| x).collect();
        xs.iter().max().unwrap() - xs.iter().min().unwrap()
    };
    let [first, second, third, fourth] = COLOURS.map(width);
    assert!(first > 3 * fourth && fourth > 2 * third && third > second, "{first} {second} {third} {fourth}");
    let lines = layout.plots[1].1;
    let height = |colour| {
        let mut ys: Vec<usize> = picture.places(lines, colour).into_iter().map(|(_, y)| y).collect();
        ys.sort_unstable();
        ys[ys.len() / 2]
    };
    let [first, second, _, fourth] = COLOURS.map(height);
    assert!(first + 30 < fourth && fourth < second, "{first} {fourth} {second}");
}

fn check_print(pdf: &[u8]) {
    let count = |what: &[u8]| pdf.windows(what.len()).filter(|window| *window == what).count();
    assert!(pdf.starts_with(b"%PDF-"));
    let pages = count(b"/Type /Page\n");
    assert!((2..=12).contains(&pages), "{pages} pages");
    assert!(count(b"/FontFile") >= 1, "it has text");
}

fn hostile() -> Comparison {
    let mut comparison = fixture::comparison();
    comparison.started = HOSTILE.to_owned();
    comparison.generator = HOSTILE.to_owned();
    comparison.missing[0].broker = HOSTILE.to_owned();
    comparison.missing[0].reason = HOSTILE.to_owned();
    for part in &mut comparison.scenarios {
        (part.scenario, part.about) = (HOSTILE.to_owned(), HOSTILE.to_owned());
        for result in &mut part.brokers {
            result.broker = hostile_run().broker;
            result.runs.iter_mut().for_each(|run| *run = hostile_run());
        }
    }
    comparison
}

fn hostile_run() -> Run {
    let mut run = fixture::run();
    let broker = &mut run.broker;
    for text in [&mut broker.name, &mut broker.version, &mut broker.configuration, &mut broker.address] {
        *text = HOSTILE.to_owned();
    }
    for text in
        [&mut run.scenario, &mut run.about, &mut run.scenario_file, &mut run.started, &mut run.generator]
    {
        *text = HOSTILE.to_owned();
    }
    run.machine.processor = HOSTILE.to_owned();
    run.machine.system = HOSTILE.to_owned();
    run.error = Some(HOSTILE.to_owned());
    run.rates.delivered = f64::MAX;
    run.intervals[3].waiting = u64::MAX;
    run.intervals[4].t = f64::MAX;
    run
}
