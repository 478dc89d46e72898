"""Open N MQTT 3.1.1 connections with one own subscription each, send each one message, report the time of each step.
usage: connections.py PORT N [PID]   (PID: the broker's, to report resident memory for each connection, and when it has closed all)"""
import os, selectors, socket, sys, time

port, n = int(sys.argv[1]), int(sys.argv[2])
pid = sys.argv[3] if len(sys.argv) > 3 else None


def rss():
    if not pid:
        return 0
    return next(int(l.split()[1]) for l in open(f"/proc/{pid}/status") if l.startswith("VmRSS"))


def descriptors():
    return len(os.listdir(f"/proc/{pid}/fd")) if pid else 0


def packet(kind, body):
    size, head = len(body), bytes([kind])
    while True:
        byte, size = size % 128, size // 128
        head += bytes([byte | (128 if size else 0)])
        if not size:
            return head + body


def text(s):
    return len(s).to_bytes(2, "big") + s.encode()


idle, before, start, socks = descriptors(), rss(), time.time(), []
for i in range(n):
    s = socket.create_connection(("127.0.0.1", port))
    s.sendall(packet(0x10, text("MQTT") + b"\x04\x02\x00\x78" + text(f"dev{i}")))
    socks.append(s)
for s in socks:
    assert s.recv(4)[0] == 0x20
connected = time.time()
for i, s in enumerate(socks):
    s.sendall(packet(0x82, b"\x00\x01" + text(f"cmd/dev{i}") + b"\x00"))
for s in socks:
    assert s.recv(5)[0] == 0x90
subscribed, after = time.time(), rss()
pub = socket.create_connection(("127.0.0.1", port))
pub.sendall(packet(0x10, text("MQTT") + b"\x04\x02\x00\x78" + text("pub")))
pub.recv(4)
for i in range(n):
    pub.sendall(packet(0x30, text(f"cmd/dev{i}") + b"x" * 32))
sel, got = selectors.DefaultSelector(), 0
for s in socks:
    sel.register(s, selectors.EVENT_READ)
deadline = time.time() + 60
while got < n and time.time() < deadline:
    for key, _ in sel.select(1):
        if key.fileobj.recv(4096):
            got += 1
        sel.unregister(key.fileobj)
delivered = time.time()
for s in socks + [pub]:
    s.close()
while descriptors() > idle and time.time() < delivered + 20:
    time.sleep(0.005)
gone = time.time()
time.sleep(1)
print(f"connect_s={connected-start:.2f} subscribe_s={subscribed-connected:.2f} deliver_s={delivered-subscribed:.2f} disconnect_s={'more than ' if descriptors() > idle else ''}{gone-delivered:.2f} got={got}/{n} kB_per_conn={(after-before)/n:.2f} rss_end_kB={rss()}")
