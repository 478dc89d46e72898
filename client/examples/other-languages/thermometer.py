"""A thermometer that follows Tidegate's control protocol with nothing but paho-mqtt.

thermometer.py host port client [seconds] [prefix]
"""
import json
import math
import random
import sys
import time

import paho.mqtt.client as mqtt

host, port, client = sys.argv[1], int(sys.argv[2]), sys.argv[3]
seconds = float(sys.argv[4]) if len(sys.argv) > 4 else math.inf
prefix = sys.argv[5] if len(sys.argv) > 5 else "$tide/v1"
OWN_RATE = 5.0  # messages a second while nobody asks for less
told = {}  # what each source said last: its number, its rate, until when it holds


def on_rate(source, number, rate, ttl):
    known = told.get(source)
    if known and number < known[0] and time.monotonic() < known[2]:
        return  # an older message that came late
    if rate is None or rate > 0:
        told[source] = (number, rate, time.monotonic() + ttl)


def rate_now():
    """The most special source that is fresh; an old rate grows by a tenth each second, without a jump."""
    now = time.monotonic()
    best = sorted(told.items(), key=lambda item: (item[1][2] > now, len(item[0])))
    if not best or best[-1][1][1] is None:
        return OWN_RATE
    _, rate, until = best[-1][1]
    return min(OWN_RATE, rate * 1.1 ** min(1000, max(0.0, now - until)))


def on_message(mq, data, message):
    try:
        news = json.loads(message.payload)
        on_rate(message.topic, int(news.get("seq", 0)), news["rate"], news.get("ttl_ms", 10_000) / 1000)
    except (ValueError, KeyError, TypeError, AttributeError):
        told.pop(message.topic, None) if not message.payload else None  # taken back, or nonsense


def on_publish(mq, data, mid, code, properties):
    for key, value in getattr(properties, "UserProperty", []):
        if key == "tide-rate":
            on_rate("ack" + "~" * 99, 0, None if value == "null" else float(value), 10)


def on_connect(mq, data, flags, code, properties):
    mq.subscribe([(f"{prefix}/rate", 1), (f"{prefix}/rate/client/{client}", 1)])


mq = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client, protocol=mqtt.MQTTv5)
mq.on_connect, mq.on_message, mq.on_publish = on_connect, on_message, on_publish
mq.connect(host, port)
mq.loop_start()
start = last = time.monotonic()
total, count, sent, phase = 0.0, 0, 0, random.random()  # the phase keeps a fleet from sending in step
while (now := time.monotonic()) < start + seconds or count:
    if now < start + seconds:
        total, count = total + 21 + math.sin(now), count + 1
    if count and now - last >= (1 + phase) / rate_now():
        mq.publish(f"room/{client}/temp", json.dumps({"mean": total / count, "count": count}), qos=1).wait_for_publish(10)
        last, total, count, sent, phase = now, 0.0, 0, sent + 1, 0.0
    time.sleep(0.05)
print(f"done: {sent} messages at {rate_now()} a second", flush=True)
mq.disconnect()
