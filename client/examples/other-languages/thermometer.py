"""Follows Tidegate's rates with nothing but paho-mqtt: thermometer.py host port client [seconds] [prefix]"""
import json, math, random, sys, time
import paho.mqtt.client as mqtt

host, port, client, seconds, prefix = (sys.argv[1:] + ["inf", "$tide/v1"][len(sys.argv) - 4:])[:5]
OWN_RATE = 5.0  # messages a second while nobody asks for less
told = {}  # what each source said last: its number, its rate, until when it holds

def on_rate(source, number, rate, ttl):
    known = told.get(source, (0, None, 0))
    if (number >= known[0] or time.monotonic() > known[2]) and (rate is None or rate > 0):
        told[source] = (number, rate, time.monotonic() + ttl)

def rate_now():  # the most special source that is fresh; an old rate grows by a tenth each second, without a jump
    now = time.monotonic()
    best = max(told, key=lambda source: (told[source][2] > now, len(source)), default=None)
    _, rate, until = told.get(best, (0, None, 0))
    return OWN_RATE if rate is None else min(OWN_RATE, rate * 1.1 ** min(1000, max(0, now - until)))

def on_message(mq, data, message):
    try:
        news = json.loads(message.payload)
        on_rate(message.topic, int(news.get("seq", 0)), news["rate"], news.get("ttl_ms", 10_000) / 1000)
    except (ValueError, KeyError, TypeError, AttributeError):
        told.pop(None if message.payload else message.topic, None)  # nonsense, or taken back

def on_publish(mq, data, mid, code, properties):
    for rate in [value for key, value in getattr(properties, "UserProperty", []) if key == "tide-rate"]:
        on_rate("ack" + "~" * 99, 0, None if rate == "null" else float(rate), 10)

def on_connect(mq, data, flags, code, properties):
    mq.subscribe([(f"{prefix}/rate", 1), (f"{prefix}/rate/client/{client}", 1)])

mq = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client, protocol=mqtt.MQTTv5)
mq.on_connect, mq.on_message, mq.on_publish = on_connect, on_message, on_publish
mq.connect(host, int(port))
mq.loop_start()
start, samples, sent, due = time.monotonic(), [], 0, random.random()  # a random phase keeps a fleet from sending in step
last = start
while (now := time.monotonic()) < start + float(seconds) or samples:
    samples += [21 + math.sin(now)] if now < start + float(seconds) else []
    if samples and now - last >= (1 + due) / rate_now():
        message = {"mean": sum(samples) / len(samples), "count": len(samples)}
        mq.publish(f"room/{client}/temp", json.dumps(message), qos=1).wait_for_publish(10)
        last, samples, sent, due = now, [], sent + 1, 0
    time.sleep(0.05)
print(f"done: {sent} messages at {rate_now()} a second", flush=True)
mq.disconnect()
