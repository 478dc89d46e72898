//! A small independent MQTT 3.1.1 load probe (std only): rustc -O --edition 2021 -o target/flood benches/probes/flood.rs && target/flood PORT key=value ...
//! keys: pubs=8 subs=1 qos=1 size=64 secs=4 window=50 service_us=0 share= drain=5 rate=0 (msg/s per publisher, 0 = flood)
//! Prints one line: sent/s acked/s recv/s p50_ms p99_ms accepted received missing dup
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn varlen(mut n: usize, v: &mut Vec<u8>) {
    loop {
        let mut b = (n % 128) as u8;
        n /= 128;
        if n > 0 { b |= 0x80 }
        v.push(b);
        if n == 0 { break }
    }
}

fn connect(port: u16, id: &str) -> TcpStream {
    let mut s = TcpStream::connect(("127.0.0.1", port)).expect("connect");
    s.set_nodelay(true).unwrap();
    let mut p = vec![0x10];
    varlen(12 + id.len(), &mut p);
    p.extend([0, 4, b'M', b'Q', b'T', b'T', 4, 2, 0, 120, 0, id.len() as u8]);
    p.extend(id.as_bytes());
    s.write_all(&p).unwrap();
    let mut b = [0u8; 4];
    s.read_exact(&mut b).expect("connack");
    assert_eq!((b[0], b[3]), (0x20, 0), "refused");
    s
}

/// Calls `f` for each whole packet at the front of `buf` and removes them.
fn packets(buf: &mut Vec<u8>, mut f: impl FnMut(u8, &[u8])) {
    let mut off = 0;
    while buf.len() - off >= 2 {
        let (mut n, mut m, mut i, mut whole) = (0usize, 1usize, off + 1, false);
        while i < buf.len() {
            let b = buf[i];
            n += (b & 127) as usize * m;
            m *= 128;
            i += 1;
            if b & 128 == 0 { whole = true; break }
        }
        if !whole || buf.len() - i < n { break }
        f(buf[off], &buf[i..i + n]);
        off = i + n;
    }
    buf.drain(..off);
}

fn main() {
    let port: u16 = std::env::args().nth(1).expect("PORT").parse().unwrap();
    let o: HashMap<String, String> = std::env::args().skip(2).map(|a| { let (k, v) = a.split_once('=').expect("key=value"); (k.into(), v.into()) }).collect();
    let num = |k: &str, d: u64| o.get(k).map_or(d, |v| v.parse().unwrap());
    let (pubs, subs, qos, size) = (num("pubs", 8) as usize, num("subs", 1) as usize, num("qos", 1) as u8, num("size", 64).max(20) as usize);
    let (secs, window, service, drain, rate) = (num("secs", 4), num("window", 50) as usize, num("service_us", 0), num("drain", 5), num("rate", 0));
    let share = o.get("share").cloned().unwrap_or_default();
    let filter = if share.is_empty() { "flood/#".to_string() } else { format!("$share/{share}/flood/#") };
    let t0 = Instant::now();
    let (sent, acked, recv, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let seen: Arc<Mutex<HashMap<(u32, u64), u32>>> = Default::default();
    let lat: Arc<Mutex<Vec<u32>>> = Default::default();
    for k in 0..subs {
        let mut s = connect(port, &format!("fsub{k}"));
        let f = filter.as_bytes();
        let mut p = vec![0x82];
        varlen(5 + f.len(), &mut p);
        p.extend([0, 1, 0, f.len() as u8]);
        p.extend(f);
        p.push(qos.min(1));
        s.write_all(&p).unwrap();
        let (r, seen, lat) = (recv.clone(), seen.clone(), lat.clone());
        std::thread::spawn(move || {
            let (mut buf, mut tmp) = (Vec::with_capacity(1 << 20), vec![0u8; if service > 0 { 4096 } else { 1 << 16 }]);
            loop {
                let n = match s.read(&mut tmp) { Ok(0) | Err(_) => return, Ok(n) => n };
                buf.extend(&tmp[..n]);
                let (mut batch, mut acks) = (vec![], vec![]);
                packets(&mut buf, |h, b| if h >> 4 == 3 {
                    let tl = (b[0] as usize) << 8 | b[1] as usize;
                    let q = (h >> 1) & 3;
                    if q > 0 { acks.push([0x40, 2, b[2 + tl], b[3 + tl]]); }
                    let pl = &b[2 + tl + if q > 0 { 2 } else { 0 }..];
                    if pl.len() >= 20 {
                        let at = u64::from_be_bytes(pl[..8].try_into().unwrap());
                        let who = u32::from_be_bytes(pl[8..12].try_into().unwrap());
                        let seq = u64::from_be_bytes(pl[12..20].try_into().unwrap());
                        batch.push((at, who, seq));
                    }
                });
                if service > 0 {
                    for (i, m) in batch.iter().enumerate() {
                        std::thread::sleep(Duration::from_micros(service));
                        note(&seen, &lat, &t0, &[*m]);
                        r.fetch_add(1, Relaxed);
                        if let Some(a) = acks.get(i) { if s.write_all(a).is_err() { return } }
                    }
                } else {
                    note(&seen, &lat, &t0, &batch);
                    r.fetch_add(batch.len() as u64, Relaxed);
                    let flat: Vec<u8> = acks.concat();
                    if !flat.is_empty() && s.write_all(&flat).is_err() { return }
                }
            }
        });
    }
    std::thread::sleep(Duration::from_millis(500));
    let mut hs = vec![];
    for k in 0..pubs {
        let (sent, acked, stop) = (sent.clone(), acked.clone(), stop.clone());
        hs.push(std::thread::spawn(move || {
            let mut s = connect(port, &format!("fpub{k}"));
            let topic = format!("flood/{k}");
            let mut seq = 0u64;
            let mut put = |id: u16, v: &mut Vec<u8>| {
                v.push(0x30 | qos << 1);
                varlen(2 + topic.len() + if qos > 0 { 2 } else { 0 } + size, v);
                v.extend([0, topic.len() as u8]);
                v.extend(topic.as_bytes());
                if qos > 0 { v.extend(id.to_be_bytes()) }
                v.extend((t0.elapsed().as_nanos() as u64).to_be_bytes());
                v.extend((k as u32).to_be_bytes());
                v.extend(seq.to_be_bytes());
                v.resize(v.len() + size - 20, 7);
                seq += 1;
            };
            let (mut id, mut inflight, mut buf, mut tmp) = (0u16, 0usize, vec![], vec![0u8; 65536]);
            let begun = Instant::now();
            let mut mine = 0u64;
            while !stop.load(Relaxed) {
                if rate > 0 {
                    let due = Duration::from_secs_f64(mine as f64 / rate as f64);
                    if let Some(w) = due.checked_sub(begun.elapsed()) { std::thread::sleep(w) }
                }
                let room = if qos == 0 { if rate > 0 { 1 } else { 50 } } else if rate > 0 { (window - inflight).min(1) } else { window - inflight };
                let mut batch = vec![];
                for _ in 0..room { id = id % 60000 + 1; put(id, &mut batch); }
                if !batch.is_empty() && s.write_all(&batch).is_err() { return }
                sent.fetch_add(room as u64, Relaxed);
                mine += room as u64;
                if qos == 0 { acked.fetch_add(room as u64, Relaxed); continue }
                inflight += room;
                let n = match s.read(&mut tmp) { Ok(0) | Err(_) => return, Ok(n) => n };
                buf.extend(&tmp[..n]);
                packets(&mut buf, |h, _| if h >> 4 == 4 { inflight -= 1; acked.fetch_add(1, Relaxed); });
            }
            s.set_read_timeout(Some(Duration::from_secs(drain))).unwrap();
            while inflight > 0 {
                let n = match s.read(&mut tmp) { Ok(0) | Err(_) => break, Ok(n) => n };
                buf.extend(&tmp[..n]);
                packets(&mut buf, |h, _| if h >> 4 == 4 { inflight -= 1; acked.fetch_add(1, Relaxed); });
            }
        }));
    }
    std::thread::sleep(Duration::from_millis(1000));
    let (a0, s0, r0, t) = (acked.load(Relaxed), sent.load(Relaxed), recv.load(Relaxed), Instant::now());
    std::thread::sleep(Duration::from_secs(secs));
    let (a1, s1, r1, dt) = (acked.load(Relaxed), sent.load(Relaxed), recv.load(Relaxed), t.elapsed().as_secs_f64());
    stop.store(true, Relaxed);
    std::thread::sleep(Duration::from_secs(drain + 1));
    let mut l = std::mem::take(&mut *lat.lock().unwrap());
    l.sort_unstable();
    let pct = |p: f64| l.get(((l.len() as f64 * p) as usize).min(l.len().saturating_sub(1))).map_or(0.0, |v| *v as f64 / 1000.0);
    let seen = seen.lock().unwrap();
    let (got, dup) = (seen.len() as u64, seen.values().map(|v| (*v - 1) as u64).sum::<u64>());
    let accepted = acked.load(Relaxed);
    println!("sent/s={:.0} acked/s={:.0} recv/s={:.0} p50_ms={:.2} p99_ms={:.2} accepted={} received={} missing={} dup={}",
        (s1 - s0) as f64 / dt, (a1 - a0) as f64 / dt, (r1 - r0) as f64 / dt, pct(0.5), pct(0.99), accepted, got, accepted as i64 - got as i64, dup);
}

fn note(seen: &Mutex<HashMap<(u32, u64), u32>>, lat: &Mutex<Vec<u32>>, t0: &Instant, batch: &[(u64, u32, u64)]) {
    let now = t0.elapsed().as_nanos() as u64;
    let mut s = seen.lock().unwrap();
    let mut l = lat.lock().unwrap();
    for (at, who, seq) in batch {
        *s.entry((*who, *seq)).or_default() += 1;
        if l.len() < 5_000_000 { l.push((now.saturating_sub(*at) / 1000).min(u32::MAX as u64) as u32) }
    }
}
