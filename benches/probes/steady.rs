//! A lean MQTT 3.1.1 load at a steady rate (std only): rustc -O --edition 2021 -o target/steady benches/probes/steady.rs && target/steady PORT key=value ...
//! keys: devices=8 qos=1 rate=10000 (of all together) size=64 secs=3
//! Two threads, one that sends for all devices, each message in a write of its own, and one consumer: for machines on which a generator
//! with more comfort would take the time that is to be measured. Latency counts from the time when a message was due.
//! Prints one line of JSON: sent and received messages a second, p50, p90 and p99 in ms, lost and out_of_order.
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

const WARMUP: Duration = Duration::from_secs(1);
/// Latencies in microseconds are told apart up to so many.
const LONGEST: usize = 2_000_000;

fn connect(port: u16, id: &str) -> TcpStream {
    let mut s = TcpStream::connect(("127.0.0.1", port)).expect("connect");
    s.set_nodelay(true).unwrap();
    let mut p = vec![0x10, 12 + id.len() as u8, 0, 4, b'M', b'Q', b'T', b'T', 4, 2, 0, 120, 0, id.len() as u8];
    p.extend(id.as_bytes());
    s.write_all(&p).unwrap();
    let mut b = [0u8; 4];
    s.read_exact(&mut b).expect("connack");
    assert_eq!((b[0], b[3]), (0x20, 0), "refused");
    s
}

/// Where the packet at the front begins and ends, without its header.
fn packet(buf: &[u8]) -> Option<(u8, usize, usize)> {
    let (mut n, mut shift) = (0usize, 0);
    for (i, b) in buf.iter().enumerate().skip(1).take(4) {
        n |= ((b & 127) as usize) << shift;
        shift += 7;
        if b & 128 == 0 { return (buf.len() > i + n).then_some((buf[0], i + 1, i + 1 + n)) }
    }
    None
}

struct Seen {
    latencies: Vec<u32>,
    next: HashMap<u32, u64>,
    lost: u64,
    out_of_order: u64,
}

/// Takes messages until its connection is shut down.
fn consume(mut s: TcpStream, t0: Instant, received: Arc<AtomicU64>) -> Seen {
    let mut seen = Seen { latencies: vec![0; LONGEST + 1], next: HashMap::new(), lost: 0, out_of_order: 0 };
    let (mut buf, mut tmp) = (Vec::new(), vec![0u8; 65536]);
    while let Ok(n) = s.read(&mut tmp) {
        if n == 0 { break }
        buf.extend(&tmp[..n]);
        let (now, mut at, mut acks, mut count) = (t0.elapsed(), 0, Vec::new(), 0);
        while let Some((first, from, to)) = packet(&buf[at..]) {
            let b = &buf[at + from..at + to];
            at += to;
            if first >> 4 != 3 { continue }
            let mut i = 2 + ((b[0] as usize) << 8 | b[1] as usize);
            if first & 6 > 0 {
                acks.extend([0x40, 2, b[i], b[i + 1]]);
                i += 2;
            }
            let due = Duration::from_nanos(u64::from_be_bytes(b[i..i + 8].try_into().unwrap()));
            let device = u32::from_be_bytes(b[i + 8..i + 12].try_into().unwrap());
            let number = u64::from_be_bytes(b[i + 12..i + 20].try_into().unwrap());
            let next = seen.next.entry(device).or_default();
            seen.lost += number.saturating_sub(*next);
            seen.out_of_order += u64::from(number < *next);
            *next = number + 1;
            if due >= WARMUP { seen.latencies[(now.saturating_sub(due).as_micros() as usize).min(LONGEST)] += 1 }
            count += 1;
        }
        buf.drain(..at);
        if !acks.is_empty() && s.write_all(&acks).is_err() { break }
        received.fetch_add(count, Relaxed);
    }
    seen
}

/// A device: what was not written yet, and how many messages it has sent.
struct Device {
    stream: TcpStream,
    topic: Vec<u8>,
    out: Vec<u8>,
    sent: u64,
}

impl Device {
    fn publish(&mut self, index: u32, due: Duration, qos: u8, size: usize) {
        let length = 2 + self.topic.len() + if qos > 0 { 2 } else { 0 } + size;
        assert!(length < 16384);
        self.out.extend([0x30 | qos << 1, (length & 127) as u8 | 128, (length >> 7) as u8, 0, self.topic.len() as u8]);
        self.out.extend(&self.topic);
        if qos > 0 { self.out.extend((self.sent % 60000 + 1).to_be_bytes()[6..].iter()) }
        self.out.extend((due.as_nanos() as u64).to_be_bytes());
        self.out.extend(index.to_be_bytes());
        self.out.extend(self.sent.to_be_bytes());
        self.out.resize(self.out.len() + size - 20, 7);
        self.sent += 1;
        self.write();
    }

    fn write(&mut self) {
        match self.stream.write(&self.out) {
            Ok(n) => drop(self.out.drain(..n)),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => panic!("a connection is lost: {e}"),
        }
    }

    fn drain(&mut self, tmp: &mut [u8]) {
        while self.stream.read(tmp).is_ok_and(|n| n == tmp.len()) {}
        if !self.out.is_empty() { self.write() }
    }
}

fn main() {
    let port: u16 = std::env::args().nth(1).expect("PORT").parse().unwrap();
    let o: HashMap<String, String> = std::env::args().skip(2).map(|a| { let (k, v) = a.split_once('=').expect("key=value"); (k.into(), v.into()) }).collect();
    let num = |k: &str, d: u64| o.get(k).map_or(d, |v| v.parse().unwrap());
    let (count, qos, rate, size, secs) = (num("devices", 8), num("qos", 1) as u8, num("rate", 10000), num("size", 64).max(20) as usize, num("secs", 3));
    let mut consumer = connect(port, "steady-consumer");
    consumer.write_all(&[0x82, 13, 0, 1, 0, 8]).unwrap();
    consumer.write_all(b"steady/#").unwrap();
    consumer.write_all(&[qos]).unwrap();
    let mut suback = [0u8; 5];
    consumer.read_exact(&mut suback).expect("suback");
    assert_eq!(suback[4], qos, "another QoS was granted");
    let device = |k| Device { stream: connect(port, &format!("steady-{k}")), topic: format!("steady/{k}").into(), out: vec![], sent: 0 };
    let mut devices: Vec<Device> = (0..count).map(device).collect();
    devices.iter().for_each(|d| d.stream.set_nonblocking(true).unwrap());
    let (t0, received) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let end = consumer.try_clone().unwrap();
    let taken = { let received = received.clone(); std::thread::spawn(move || consume(consumer, t0, received)) };
    let (mut n, mut tmp, mut drained, mut at_warm) = (0u64, vec![0u8; 4096], Duration::ZERO, 0);
    loop {
        let (due, now) = (Duration::from_secs_f64(n as f64 / rate as f64), t0.elapsed());
        if due < WARMUP { at_warm = received.load(Relaxed) }
        if now > WARMUP + Duration::from_secs(secs) { break }
        if now > drained + Duration::from_millis(1) {
            devices.iter_mut().for_each(|d| d.drain(&mut tmp));
            drained = now;
        }
        match due.checked_sub(now) {
            Some(wait) => std::thread::sleep(wait),
            None => {
                devices[(n % count) as usize].publish((n % count) as u32, due, qos, size);
                n += 1;
            }
        }
    }
    let in_time = received.load(Relaxed) - at_warm;
    let until = Instant::now() + Duration::from_secs(5);
    while received.load(Relaxed) < n && Instant::now() < until {
        devices.iter_mut().for_each(|d| d.drain(&mut tmp));
        std::thread::sleep(Duration::from_millis(5));
    }
    let late = n - received.load(Relaxed).min(n);
    end.shutdown(std::net::Shutdown::Both).unwrap();
    let mut seen = taken.join().unwrap();
    // what has not come at the end of a device's messages is missing, too
    seen.lost = seen.lost.max(late);
    let all: u64 = seen.latencies.iter().map(|c| *c as u64).sum();
    let pct = |p: f64| {
        let mut left = (all as f64 * p) as u64;
        seen.latencies.iter().position(|c| { let here = left < *c as u64; left = left.saturating_sub(*c as u64); here }).unwrap_or(LONGEST) as f64 / 1e3
    };
    println!("{{\"sent\":{:.0},\"received\":{:.0},\"p50\":{:.3},\"p90\":{:.3},\"p99\":{:.3},\"lost\":{},\"out_of_order\":{}}}",
        n as f64 / (1 + secs) as f64, in_time as f64 / secs as f64, pct(0.5), pct(0.9), pct(0.99), seen.lost, seen.out_of_order);
}
