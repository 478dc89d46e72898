"""What proxy mode costs: Mosquitto alone and through Tidegate, in turn, in one run of about four minutes.

usage: python3 benches/probes/overhead.py [rounds] [qos]

Needs target/release/tidegate, target/release/tidegate-bench, rustc and mosquitto. All of them share this machine. First the most
that passes, with as many messages in a write as there are and with one in each; then half of the most that passed Mosquitto
alone, sent on time by eight devices, a message a write (steady.rs, which leaves most of the two processors to those that are
measured). Medians of `rounds` (3), direct and proxied runs taking turns. Ends with an error unless at half of the maximum
nothing is lost and the median latency grows by 0.3 ms at most, and 0.6 of the maximum is left."""
import json, pathlib, shutil, socket, statistics, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROBES, RELEASE = ROOT / "benches/probes", ROOT / "target/release"
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 3
QOS = [int(sys.argv[2])] if len(sys.argv) > 2 else [0, 1]
SCRATCH = pathlib.Path(tempfile.mkdtemp(prefix="tidegate-overhead-"))
MOST_GROWTH, LEAST_SHARE = 0.3, 0.6

# No queue is cut, and nothing is written to a disk: Mosquitto shows what it can.
MOSQUITTO = """listener {port} 127.0.0.1
allow_anonymous true
set_tcp_nodelay true
max_queued_messages 0
max_queued_bytes 0
max_inflight_messages 0
max_inflight_bytes 0
persistence false
log_type error
"""

SCENARIO = """name = "overhead"
duration = {seconds}
warmup = 1.0
drain = 5.0
[[class]]
name = "device"
topic = "load/%i"
qos = {qos}
{devices}
[[consumers]]
instances = 1
filter = "load/#"
qos = {qos}
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def serve(port, command):
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return process
        except OSError:
            time.sleep(0.1)
    sys.exit(f"{command[0]} does not listen")


def load(port, qos, devices, seconds=3.0):
    """One run of the load generator, as its JSON says."""
    file = SCRATCH / "overhead.toml"
    file.write_text(SCENARIO.format(qos=qos, devices=devices, seconds=seconds))
    command = [RELEASE / "tidegate-bench", "run", file, "--target", f"127.0.0.1:{port}", "--json", "-"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)
    result = json.loads(done.stdout) if done.stdout else {"error": done.stderr[-300:]}
    if result["error"]:
        sys.exit(f"a run was cut short: {result['error']}")
    return result


def steady(port, qos, rate):
    """One run at a steady rate."""
    command = [SCRATCH / "steady", port, f"qos={qos}", f"rate={rate:.0f}"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)
    return json.loads(done.stdout) if done.stdout else sys.exit(f"a run failed: {done.stderr[-300:]}")


def in_turn(ports, run):
    """The results of all rounds, by way."""
    results = {way: [] for way in ports}
    for _ in range(ROUNDS):
        for way, port in ports.items():
            results[way].append(run(port))
    return results


def middle(results, *keys):
    def value(result):
        for key in keys:
            result = result[key]
        return result

    values = sorted(map(value, results))
    return statistics.median(values), values[0], values[-1]


def show(figure, digits):
    return f"{figure[0]:,.{digits}f} [{figure[1]:,.{digits}f} to {figure[2]:,.{digits}f}]"


def maximum(ports, qos, words, devices, wrong):
    results = in_turn(ports, lambda port: load(port, qos, devices))
    direct, proxied = (middle(results[way], "rates", "delivered") for way in ports)
    share = proxied[0] / direct[0]
    print(f"| QoS {qos}, most, {words} | {show(direct, 0)}/s | {show(proxied, 0)}/s | {share:.2f} |", flush=True)
    if share < LEAST_SHARE:
        wrong.append(f"QoS {qos}, {words}: only {share:.2f} of the maximum is left, {LEAST_SHARE} is wanted")
    return direct[0]


def half(ports, qos, most, wrong):
    rate = most / 2
    results = in_turn(ports, lambda port: steady(port, qos, rate))
    direct, proxied = (middle(results[way], "p50") for way in ports)
    growth = proxied[0] - direct[0]
    lost = sum(result["lost"] + result["out_of_order"] for result in results["proxied"])
    words = f"| QoS {qos}, {rate:,.0f}/s: p50, ms | {show(direct, 2)} | {show(proxied, 2)} | {growth:+.2f} |"
    tails = [f"{middle(results[way], 'p99')[0]:.1f}" for way in ports]
    print(f"{words}\n| p99, ms | {' | '.join(tails)} | |\n| lost or out of order | | {lost} | |", flush=True)
    if growth > MOST_GROWTH:
        wrong.append(f"QoS {qos}: the median latency grows by {growth:.2f} ms, {MOST_GROWTH} is allowed")
    if lost:
        wrong.append(f"QoS {qos}: {lost} messages were lost or out of order")
    received = middle(results["proxied"], "received")[0]
    if received < 0.98 * rate:
        wrong.append(f"QoS {qos}: {received:,.0f} messages a second came in place of {rate:,.0f}")


def main():
    broker, proxy = free_port(), free_port()
    config = SCRATCH / "mosquitto.conf"
    config.write_text(MOSQUITTO.format(port=broker))
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
    if not program:
        sys.exit("mosquitto is not installed: run apt-get install mosquitto")
    settings = ["mode=proxy", f"listen.mqtt=127.0.0.1:{proxy}", f"proxy.upstream=127.0.0.1:{broker}", "admin.listen=[]"]
    subprocess.run(["rustc", "-O", "--edition", "2021", "-o", SCRATCH / "steady", PROBES / "steady.rs"], check=True)
    servers = [serve(broker, [program, "-c", config])]
    wrong = []
    try:
        servers.append(serve(proxy, [RELEASE / "tidegate", *(x for s in settings for x in ("--set", s))]))
        ports = {"direct": broker, "proxied": proxy}
        print("| | Mosquitto alone | through Tidegate | |\n|---|---:|---:|---:|")
        for qos in QOS:
            most = maximum(ports, qos, "large writes", "devices = 8\nwindow = 50", wrong)
            maximum(ports, qos, "a message a write", "devices = 8\nwindow = 50\nbatch = 1", wrong)
            half(ports, qos, most, wrong)
    finally:
        for server in servers:
            server.terminate()
            server.wait()
        shutil.rmtree(SCRATCH, ignore_errors=True)
    if wrong:
        sys.exit("\n".join(wrong))


main()
