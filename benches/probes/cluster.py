"""Two Tidegate nodes before a NATS cluster of three: one of each is killed under load.

usage: cluster.py [--tidegate PATH] [--kill follower|leader] [--seconds N]

Six publishers (QoS 1, ten messages open each, as fast as they are let) and one consumer that processes 200 messages a
second, with a session that NATS keeps. Each knows the addresses of both nodes, and goes to the next one when it loses
its connection. Reported: how long each client was without a connection and without an acknowledgement or a message, what
was lost, and how long until what all publishers may send together is right again. Beside them a consumer and a publisher
without a gateway, which begin at the NATS node that is killed, show what is NATS's own doing. Ends with an error if a client takes
more than five seconds to come back and longer than those two by more than one of its tries takes, if something acknowledged is lost, or if the
rate does not settle.

The NATS node that leads least is killed, and with `--kill leader` the one that leads most: for what it led NATS elects
another one after 4 to 9 s."""
import argparse, json, os, random, signal, socket, subprocess, sys, tempfile, threading, time, urllib.request

PACE, PUBLISHERS, WINDOW = 200.0, 6, 10
# seconds that a client waits for an answer before it tries again
PATIENCE = 2


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def packet(kind, body):
    size, head = len(body), bytes([kind])
    while True:
        byte, size = size % 128, size // 128
        head += bytes([byte | (128 if size else 0)])
        if not size:
            return head + body


def text(s):
    return len(s).to_bytes(2, "big") + s.encode()


class Gone(Exception):
    pass


class Client(threading.Thread):
    """A client that comes back: what it does with a connection is in `serve`."""

    def __init__(self, name, ports, clean):
        super().__init__(daemon=True)
        self.name, self.ports, self.clean = name, list(ports), clean
        self.over, self.left, self.back, self.useful, self.away = False, None, None, None, []

    def run(self):
        while not self.over:
            try:
                self.open(self.ports[0])
                self.serve()
            except (OSError, Gone):
                if self.left is None:
                    self.left = time.monotonic()
            finally:
                self.sock.close()
            self.ports.append(self.ports.pop(0))
            time.sleep(random.uniform(0.05, 0.2))

    def open(self, port):
        self.sock, self.input = socket.socket(), b""
        self.sock.settimeout(PATIENCE)
        self.sock.connect(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        flags = b"\x02" if self.clean else b"\x00"
        self.sock.sendall(packet(0x10, text("MQTT") + b"\x04" + flags + b"\x00\x1e" + text(self.name)))
        kind, body = self.receive()
        if kind != 0x20 or body[1] != 0:
            raise Gone
        if self.left is not None:
            self.back = time.monotonic()

    def used(self):
        """Something was acknowledged, or came."""
        if self.left is not None and self.back is not None:
            now = time.monotonic()
            self.away.append((self.left, self.back - self.left, now - self.left))
            self.left = self.back = None

    def receive(self):
        while True:
            if len(self.input) >= 2:
                size, shift, at = 0, 0, 1
                while at < len(self.input):
                    size |= (self.input[at] & 127) << shift
                    shift += 7
                    at += 1
                    if not self.input[at - 1] & 128:
                        break
                if not self.input[at - 1] & 128 and len(self.input) >= at + size:
                    kind, body = self.input[0], self.input[at:at + size]
                    self.input = self.input[at + size:]
                    return kind, body
            data = self.sock.recv(65536)
            if not data:
                raise Gone
            self.input += data


class Publisher(Client):
    """Sends again what was not acknowledged when it lost its connection."""

    def __init__(self, number, ports, name="publisher", topic="s", pause=0.0):
        super().__init__(f"{name}-{number}", ports, True)
        self.number, self.topic, self.pause = number, topic, pause
        self.next, self.open_ids, self.accepted = 1, {}, set()

    def send(self, message):
        ident = message % 60000 + 1
        self.open_ids[ident] = message
        body = text(f"{self.topic}/{self.number}") + ident.to_bytes(2, "big") + f"{self.number}:{message}".encode()
        self.sock.sendall(packet(0x32, body))

    def serve(self):
        again, self.open_ids = sorted(self.open_ids.values()), {}
        for message in again:
            self.send(message)
        # a publisher that is held by its rate or by NATS waits for long
        self.sock.settimeout(15)
        while not self.over:
            while len(self.open_ids) < WINDOW:
                self.send(self.next)
                self.next += 1
            kind, body = self.receive()
            time.sleep(self.pause)
            if kind == 0x40:
                message = self.open_ids.pop(int.from_bytes(body[:2], "big"), None)
                if message is not None:
                    self.accepted.add((self.number, message))
                self.used()


class Consumer(Client):
    """Processes messages at its pace, and acknowledges each of them then."""

    def __init__(self, ports, name="worker", topic="s"):
        super().__init__(name, ports, False)
        self.topic, self.got, self.taken, self.subscribed = topic, set(), 0, False

    def serve(self):
        self.sock.sendall(packet(0x82, b"\x00\x01" + text(f"{self.topic}/#") + b"\x01"))
        self.sock.settimeout(15)
        due, ping = time.monotonic(), time.monotonic()
        while not self.over:
            kind, body = self.receive()
            self.subscribed |= kind == 0x90
            if kind >> 4 != 3:
                continue
            length = int.from_bytes(body[:2], "big")
            ident, payload = body[2 + length:4 + length], body[4 + length:]
            now = time.monotonic()
            due = max(due, now - 0.1) + 1 / PACE
            time.sleep(max(0, due - now))
            self.sock.sendall(packet(0x40, ident))
            number, message = payload.split(b":")
            self.got.add((int(number), int(message)))
            self.taken += 1
            self.used()
            if now > ping + 5:
                self.sock.sendall(b"\xc0\x00")
                ping = now


def start_nats(folder):
    names = ["n1", "n2", "n3"]
    clients, routes, mqtt, monitors = ([free_port() for _ in names] for _ in range(4))
    urls = ", ".join(f"nats://127.0.0.1:{port}" for port in routes)
    started = []
    for at, name in enumerate(names):
        path = os.path.join(folder, name + ".conf")
        with open(path, "w") as f:
            f.write(
                f"server_name: {name}\nlisten: 127.0.0.1:{clients[at]}\nhttp: 127.0.0.1:{monitors[at]}\n"
                f'jetstream {{ store_dir: "{folder}/{name}" }}\n'
                f"cluster {{ name: probe, listen: 127.0.0.1:{routes[at]}, routes: [{urls}] }}\n"
                f'mqtt {{ listen: 127.0.0.1:{mqtt[at]}, ack_wait: "5s", max_ack_pending: 40 }}\n'
            )
        log = open(os.path.join(folder, name + ".log"), "w")
        started.append(subprocess.Popen(["nats-server", "-c", path], stdout=log, stderr=log))
    return names, started, mqtt, monitors


def get(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=3) as answer:
        return json.load(answer)


def wait_for(what, condition, seconds=30):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if condition():
                return
        except (OSError, ValueError, KeyError, Gone):
            pass
        time.sleep(0.1)
    raise SystemExit(f"error: {what} did not happen within {seconds} s")


def accepts(port):
    client = Client(f"try-{port}", [port], True)
    client.open(port)
    client.sock.sendall(packet(0x82, b"\x00\x01" + text("probe") + b"\x01"))
    kind, body = client.receive()
    client.sock.close()
    return kind == 0x90 and body[2] < 0x80


def leaders(names, monitors):
    """What each NATS node leads: a node that leads something for MQTT is missed until NATS has elected another one."""
    led = {name: set() for name in names}
    for port in monitors:
        answer = get(port, "/jsz?streams=true&consumers=true")
        meta = answer.get("meta_cluster", {}).get("leader")
        if meta in led:
            led[meta].add("the cluster")
        for account in answer.get("account_details", []):
            for stream in account.get("stream_detail", []):
                for asset in [stream] + stream.get("consumer_detail", []):
                    leader = asset.get("cluster", {}).get("leader")
                    if leader in led:
                        led[leader].add(asset["name"])
    return led


def start_tidegate(program, folder, name, upstreams):
    port, admin = free_port(), free_port()
    settings = {
        "listen.mqtt": f"127.0.0.1:{port}",
        "admin.listen": f"127.0.0.1:{admin}",
        "mode": "proxy",
        "plugins": '["access","overload","gate"]',
        "proxy.upstream": ",".join(f"127.0.0.1:{upstream}" for upstream in upstreams),
        "proxy.timeout_ms": "2000",
        "proxy.max_retry_ms": "2000",
        "proxy.node.id": name,
    }
    arguments = [program, "serve"]
    for key, value in settings.items():
        arguments += ["--set", f"{key}={value}"]
    log = open(os.path.join(folder, name + ".log"), "w")
    return subprocess.Popen(arguments, stdout=log, stderr=log), port, admin


def announced(admins):
    """What all publishers may send together, as the nodes that answer say; none without a limit."""
    total = 0.0
    for admin in admins:
        for queue in get(admin, "/api/v1/queues"):
            if queue["queue"] == "client/worker:s/#" and queue["publishers"]:
                rate = next((rate["rate"] for rate in queue["rates"] if rate["class"] == "default"), None)
                if rate is None:
                    return None
                total += rate * queue["publishers"]
    return total


def settled(admins, publishers, consumer, seconds):
    """Seconds until a mean over two seconds of what is announced, and of what is accepted and processed, is within 15% of the pace and
    stays so for five seconds; and the last means."""
    begun, history = time.monotonic(), []
    while time.monotonic() < begun + seconds:
        try:
            rate = announced(admins)
        except OSError:
            rate = None
        history.append((time.monotonic(), rate, sum(len(p.accepted) for p in publishers), consumer.taken))
        now = history[-1][0]
        good = None
        for at in range(len(history) - 1, -1, -1):
            if history[at][0] < begun + 2:
                break
            window = [entry for entry in history if history[at][0] - 2 <= entry[0] <= history[at][0]]
            span = window[-1][0] - window[0][0]
            rates = [entry[1] for entry in window]
            if span < 1.5 or None in rates:
                break
            means = (sum(rates) / len(rates), (window[-1][2] - window[0][2]) / span, (window[-1][3] - window[0][3]) / span)
            if any(abs(mean / PACE - 1) > 0.15 for mean in means):
                break
            good = window[0][0]
        if good is not None and now - good >= 7:
            return good - begun, means
        time.sleep(0.1)
    return None, None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tidegate", default="target/release/tidegate")
    parser.add_argument("--kill", choices=["follower", "leader"], default="follower")
    parser.add_argument("--seconds", type=float, default=40, help="at most so long until rates settle")
    arguments = parser.parse_args()
    processes, clients, failures = [], [], []
    with tempfile.TemporaryDirectory(prefix="tidegate-cluster-") as folder:
        try:
            failures = probe(arguments, folder, processes, clients)
        finally:
            for client in clients:
                client.over = True
            for process in processes:
                process.kill()
                process.wait()
    if failures:
        raise SystemExit("error: " + "; ".join(failures))


def probe(arguments, folder, processes, clients):
    names, nats, mqtt, monitors = start_nats(folder)
    processes += nats
    for port in mqtt:
        wait_for("NATS has a leader", lambda: accepts(port), 60)
    # each node begins with another NATS node
    a, port_a, admin_a = start_tidegate(arguments.tidegate, folder, "a", mqtt)
    b, port_b, admin_b = start_tidegate(arguments.tidegate, folder, "b", mqtt[1:] + mqtt[:1])
    processes += [a, b]
    wait_for("the nodes accept", lambda: accepts(port_a) and accepts(port_b))
    consumer = Consumer([port_a, port_b])
    publishers = [Publisher(n, [port_a, port_b] if n % 2 else [port_b, port_a]) for n in range(PUBLISHERS)]
    clients += [consumer] + publishers
    consumer.start()
    wait_for("the consumer is there", lambda: consumer.subscribed)
    # the other node hears of it
    time.sleep(1)
    for publisher in publishers:
        publisher.start()
    before, means = settled([admin_a, admin_b], publishers, consumer, arguments.seconds)
    if before is None:
        for admin in [admin_a, admin_b]:
            print("a node says", json.dumps(get(admin, "/api/v1/queues")))
        return ["rates did not settle before anything was killed"]
    print(f"settled after {before:.1f} s: announced {means[0]:.0f}, accepted {means[1]:.0f}, processed {means[2]:.0f} a second")
    led = leaders(names, monitors)
    by_weight = sorted(range(len(names)), key=lambda at: len(led[names[at]]))
    victim = by_weight[-1] if arguments.kill == "leader" else by_weight[0]
    leads = ", ".join(sorted(led[names[victim]])) or "nothing"
    # what NATS does to those who have no gateway, in the same run
    around = mqtt[victim:] + mqtt[:victim]
    direct = [Consumer(around, "direct-worker", "d"), Publisher(0, around, "direct-publisher", "d", 2 / PACE)]
    clients += direct
    for client in direct:
        client.start()
    wait_for("clients without a gateway are served", lambda: direct[0].taken > 100)
    print(f"killing NATS node {names[victim]}, which leads {leads}, and Tidegate node a")
    killed = time.monotonic()
    nats[victim].send_signal(signal.SIGKILL)
    a.send_signal(signal.SIGKILL)
    after, means = settled([admin_b], publishers, consumer, arguments.seconds)
    failures = []
    away = {client: [away for away in client.away if away[0] >= killed - 0.1] for client in clients}
    longest = max(5, PATIENCE + max((back for client in direct for _, back, _ in away[client]), default=0))
    for client in clients:
        lost = away[client]
        if client.left is not None:
            failures.append(f"{client.name} is not back")
        for _, back, useful in lost:
            print(f"{client.name}: connected again after {back:.2f} s, first acknowledgement or message after {useful:.2f} s")
            if back > longest and client not in direct:
                failures.append(f"{client.name} was away for {back:.1f} s")
        if not lost and client.left is None:
            print(f"{client.name}: kept its connection")
    if after is None:
        failures.append(f"rates did not settle within {arguments.seconds:.0f} s")
        try:
            print("node b says", json.dumps(get(admin_b, "/api/v1/queues")))
        except OSError:
            pass
    else:
        print(f"settled {after:.1f} s after that: announced {means[0]:.0f}, accepted {means[1]:.0f}, processed {means[2]:.0f} a second")
    accepted = set().union(*(set(publisher.accepted) for publisher in publishers))
    deadline = time.monotonic() + 15
    while accepted - consumer.got and time.monotonic() < deadline:
        time.sleep(0.2)
    missing = accepted - consumer.got
    print(f"accepted {len(accepted)}, of these not processed {len(missing)}")
    if missing:
        failures.append(f"{len(missing)} acknowledged messages did not come")
    return failures


main()
