"""The README's table, made again: each server in turn, on the same workloads, in one run of about four minutes.

usage: ulimit -n 20000; python3 benches/probes/side_by_side.py [rounds]

Needs target/release/tidegate, target/release/tidegate-bench (for rumqttd) and rustc; mosquitto and nats-server where
they are installed. The servers run with their defaults (NATS needs JetStream for MQTT), on free ports of loopback."""
import pathlib, shutil, socket, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROBES, RELEASE = ROOT / "benches/probes", ROOT / "target/release"
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 2
SCRATCH = pathlib.Path(tempfile.mkdtemp(prefix="tidegate-probes-"))

WORKLOADS = [
    ("flood, QoS 0", "qos=0 secs=4 drain=3", ROUNDS),
    ("flood, QoS 1", "qos=1 secs=4 drain=3", ROUNDS),
    ("twice what the consumer takes, QoS 1", "qos=1 pubs=20 rate=100 service_us=1000 secs=5 drain=4", 1),
    ("fan-out 1 to 100 at 2,000/s, QoS 0", "qos=0 pubs=1 subs=100 rate=2000 secs=4 drain=3", 1),
    ("shared group of 4, QoS 1", "qos=1 pubs=4 subs=4 share=g secs=4 drain=3", 1),
]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def find(name):
    return shutil.which(name) or shutil.which(name, path="/usr/sbin")


def tidegate(port):
    admin = f"admin.listen=127.0.0.1:{free_port()}"
    return [RELEASE / "tidegate", "--set", f"listen.mqtt=127.0.0.1:{port}", "--set", admin]


def mosquitto(port):
    program, config = find("mosquitto"), SCRATCH / "mosquitto.conf"
    config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
    return program and [program, "-c", config]


def nats(port):
    program, config, store = find("nats-server"), SCRATCH / "nats.conf", SCRATCH / f"nats-{port}"
    config.write_text(
        f'server_name: probe\nlisten: "127.0.0.1:{free_port()}"\njetstream {{ store_dir: "{store}" }}\n'
        f'mqtt {{ listen: "127.0.0.1:{port}" }}\n'
    )
    return program and [program, "-c", config]


def rumqttd(port):
    return [RELEASE / "tidegate-bench", "rumqttd", "--port", str(port)]


SERVERS = {"tidegate": tidegate, "mosquitto": mosquitto, "nats": nats, "rumqttd": rumqttd}


class Running:
    """A server on a free port, for as long as it is needed."""

    def __init__(self, name):
        self.port = free_port()
        command = SERVERS[name](self.port)
        self.process = command and subprocess.Popen(
            list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def __enter__(self):
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                break
            except OSError:
                time.sleep(0.1)
        time.sleep(0.5)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def run(*command):
    try:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return "failed: not done in two minutes"
    return done.stdout.strip() or f"failed: {done.stderr.strip()[-200:]}"


def main():
    flood = SCRATCH / "flood"
    subprocess.run(["rustc", "-O", "--edition", "2021", "-o", flood, PROBES / "flood.rs"], check=True)
    there = [name for name in SERVERS if SERVERS[name](1)]
    for name in SERVERS.keys() - set(there):
        print(f"{name} is not installed: left out")
    for title, options, rounds in WORKLOADS:
        print(f"\n{title} ({options})")
        for _ in range(rounds):
            for name in there:
                with Running(name) as server:
                    print(f"  {name:10} {run(flood, server.port, *options.split())}", flush=True)
    print("\n9,000 connections with a filter each")
    # rumqttd's own server takes over a minute to connect them
    for name in (name for name in there if name != "rumqttd"):
        with Running(name) as server:
            result = run("python3", PROBES / "connections.py", server.port, 9000, server.process.pid)
            print(f"  {name:10} {result}", flush=True)
    shutil.rmtree(SCRATCH, ignore_errors=True)


main()
