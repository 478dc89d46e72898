"""Follows Tidegate's rates with nothing but paho-mqtt: thermometer.py host port client [seconds] [prefix]"""
import json, math, random, sys, time, paho.mqtt.client as mqtt
host, port, client, seconds, prefix = (sys.argv[1:] + ["inf", "$tide/v1"][len(sys.argv) - 4:])[:5]
OWN_RATE, clock = 5.0, time.monotonic  # messages a second while nobody asks for less
told, samples, flying, sent, pause = {}, [], [], [], [0.0]  # by topic: its last number, its rate, until when it holds
def on_rate(topic, number, rate, ttl=math.inf):  # what says no time holds until there is news
    known = told.get(topic, (0, None, 0))
    if (number >= known[0] or clock() > known[2]) and (rate is None or 0 < rate < math.inf):
        told[topic] = (number, rate, clock() + ttl)
best = lambda: max(told, key=lambda topic: (told[topic][2] > clock(), len(topic)), default=f"{prefix}/rate")  # the most special
def rate_now():  # an old rate grows by a tenth each second, without a jump
    _, rate, until = told.get(best(), (0, None, 0))
    return OWN_RATE if rate is None else min(OWN_RATE, rate * 1.1 ** min(999, max(0, clock() - until)))
def on_message(mq, data, message):  # an empty one takes it back
    told.pop(None if message.payload else message.topic, None)
    news = json.loads(message.payload or "{}")
    on_rate(message.topic, news.get("seq", 0), news.get("rate", 0), news.get("ttl_ms", math.inf) / 1000)
def on_publish(mq, data, mid, code, properties):  # 0x97: too fast, it goes again after that time and a random bit more
    said = dict(getattr(properties, "UserProperty", []))
    samples.extend(flying) if code.value == 0x97 else sent.append(len(flying))
    flying.clear()
    if "tide-rate" in said:  # newer than what the topic said; an acknowledgement without it confirms the last one
        on_rate(best(), told.get(best(), (0,))[0], json.loads(said["tide-rate"]))
    pause[0] = clock() + (code.value == 0x97) * float(said.get("tide-wait-ms", 1000)) * random.uniform(1, 1.5) / 1000
def on_connect(mq, *_):  # the gateway may have started again: old numbers are void, and nothing holds for ever
    told.update({topic: (0, rate, min(until, clock() + 10)) for topic, (_, rate, until) in told.items()})
    mq.subscribe([(f"{prefix}/rate", 1), (f"{prefix}/rate/client/{client}", 1)])
mq = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client, protocol=mqtt.MQTTv5)
mq.on_connect, mq.on_message, mq.on_publish, mq.suppress_exceptions = on_connect, on_message, on_publish, True
mq.connect(host, int(port)), mq.loop_start()
last, end, credit = clock(), clock() + float(seconds), random.random()  # a random phase: no fleet sends in step
while (now := clock()) < end or samples or flying:
    samples += [21 + math.sin(now)] if now < end else []
    credit, last = min(1, credit + (now - last) * rate_now()), now
    if samples and not flying and credit >= 1 and now >= pause[0]:
        credit, flying[:], samples[:] = 0, samples, []
        mq.publish(f"room/{client}/temp", json.dumps({"mean": sum(flying) / len(flying), "count": len(flying)}), qos=1)
    time.sleep(0.05)
mq.disconnect()
print(f"done: {len(sent)} messages for {sum(sent)} samples at {rate_now()} a second", flush=True)
