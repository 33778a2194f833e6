import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import java.util.function.BooleanSupplier;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.*;

/** Scenarios of an ordinary application, run with an unmodified Java client. Prints "PASS name" or "FAIL name reason" per scenario. */
public class Conformance {
    static String nameServers;
    static String run = Long.toString(System.currentTimeMillis() % 100000000L, 36);
    static int failures;

    interface Scenario { void run() throws Exception; }

    public static void main(String[] args) throws Exception {
        nameServers = args[0];
        if (args.length > 1 && args[1].equals("consume-forever")) {
            consumeForever(args[2], args[3]);
            return;
        }
        Set<String> only = new HashSet<>(Arrays.asList(args).subList(1, args.length));
        Map<String, Scenario> all = new LinkedHashMap<>();
        all.put("send-and-push", Conformance::sendAndPush);
        all.put("large-and-unicode", Conformance::largeAndUnicode);
        all.put("limits", Conformance::limits);
        all.put("compressed", Conformance::compressed);
        all.put("ordered", Conformance::ordered);
        all.put("tags", Conformance::tags);
        all.put("retry-to-dlq", Conformance::retryToDlq);
        all.put("retry-once", Conformance::retryOnce);
        all.put("orderly-retry-to-dlq", Conformance::orderlyRetryToDlq);
        all.put("delay-level", Conformance::delayLevel);
        all.put("lite-pull", Conformance::litePull);
        all.put("pull", Conformance::pull);
        all.put("broadcast", Conformance::broadcast);
        all.put("rebalance-and-kill", Conformance::rebalanceAndKill);
        all.put("query", Conformance::query);
        all.put("offsets-survive", Conformance::offsetsSurvive);
        for (Map.Entry<String, Scenario> e : all.entrySet()) {
            if (!only.isEmpty() && !only.contains(e.getKey())) continue;
            long t0 = System.currentTimeMillis();
            try {
                e.getValue().run();
                System.out.println("PASS " + e.getKey() + " " + (System.currentTimeMillis() - t0) + " ms");
            } catch (Throwable t) {
                failures++;
                System.out.println("FAIL " + e.getKey() + " " + t);
                t.printStackTrace(System.out);
            }
        }
        System.exit(failures == 0 ? 0 : 1);
    }

    static void check(boolean ok, String what) { if (!ok) throw new AssertionError(what); }

    static void await(int seconds, String what, BooleanSupplier cond) throws Exception {
        long end = System.nanoTime() + seconds * 1_000_000_000L;
        while (!cond.getAsBoolean()) {
            if (System.nanoTime() > end) throw new AssertionError("not within " + seconds + " s: " + what);
            Thread.sleep(20);
        }
    }

    static DefaultMQProducer producer(String group) throws Exception {
        DefaultMQProducer p = new DefaultMQProducer(group);
        p.setNamesrvAddr(nameServers);
        p.setInstanceName(group + "-" + UUID.randomUUID());
        p.setSendMsgTimeout(10000);
        p.setMaxMessageSize(4 * 1024 * 1024);
        p.start();
        return p;
    }

    static DefaultMQPushConsumer push(String group, String topic, String tags) throws Exception {
        DefaultMQPushConsumer c = new DefaultMQPushConsumer(group);
        c.setNamesrvAddr(nameServers);
        c.setInstanceName(group + "-" + UUID.randomUUID());
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        c.subscribe(topic, tags);
        return c;
    }

    static byte[] utf8(String s) { return s.getBytes(StandardCharsets.UTF_8); }

    static void sendAndPush() throws Exception {
        String topic = "Cf_" + run + "_send", group = "CfG_" + run + "_send";
        DefaultMQProducer p = producer("CfP_" + run);
        Set<String> sent = ConcurrentHashMap.newKeySet();
        Map<String, MessageExt> got = new ConcurrentHashMap<>();
        AtomicInteger doubles = new AtomicInteger();
        // The first send creates the topic.
        for (int i = 0; i < 50; i++) {
            Message m = new Message(topic, "TagA", "sync-" + i, utf8("sync-" + i));
            m.putUserProperty("n", Integer.toString(i));
            SendResult r = p.send(m);
            check(r.getSendStatus() == SendStatus.SEND_OK, "status " + r);
            check(r.getOffsetMsgId() != null && r.getOffsetMsgId().length() >= 32, "offset id " + r);
            check(r.getMsgId().equals(m.getProperty("UNIQ_KEY")), "unique id " + r);
            sent.add("sync-" + i);
        }
        CountDownLatch done = new CountDownLatch(200);
        AtomicReference<Throwable> asyncError = new AtomicReference<>();
        for (int i = 0; i < 200; i++) {
            String key = "async-" + i;
            sent.add(key);
            p.send(new Message(topic, "TagB", key, utf8(key)), new SendCallback() {
                public void onSuccess(SendResult r) { if (r.getSendStatus() != SendStatus.SEND_OK) asyncError.set(new AssertionError(r.toString())); done.countDown(); }
                public void onException(Throwable e) { asyncError.set(e); done.countDown(); }
            });
        }
        check(done.await(20, TimeUnit.SECONDS), "async sends did not end");
        if (asyncError.get() != null) throw new AssertionError(asyncError.get());
        for (int i = 0; i < 50; i++) {
            p.sendOneway(new Message(topic, "TagC", "oneway-" + i, utf8("oneway-" + i)));
            sent.add("oneway-" + i);
        }
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 20; i++) {
            batch.add(new Message(topic, "TagD", "batch-" + i, utf8("batch-" + i)));
            sent.add("batch-" + i);
        }
        SendResult br = p.send(batch);
        check(br.getOffsetMsgId().split(",").length == 20, "batch ids " + br.getOffsetMsgId());
        for (int i = 0; i < 20; i++) {
            String key = "selected-" + i;
            sent.add(key);
            SendResult r = p.send(new Message(topic, "TagE", key, utf8(key)), (queues, m, arg) -> queues.get((Integer) arg % queues.size()), 1);
            check(r.getMessageQueue().getQueueId() == 1 % p.fetchPublishMessageQueues(topic).size(), "queue " + r);
        }
        DefaultMQPushConsumer c = push(group, topic, "*");
        c.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
            for (MessageExt m : msgs) if (got.put(new String(m.getBody(), StandardCharsets.UTF_8), m) != null) doubles.incrementAndGet();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        try {
            await(30, "all messages; have " + got.size() + " of " + sent.size(), () -> got.keySet().containsAll(sent));
            check(got.size() == sent.size(), "more messages than were sent");
            check(doubles.get() == 0, doubles + " doubles");
            MessageExt m = got.get("sync-7");
            check("7".equals(m.getUserProperty("n")), "user property");
            check("TagA".equals(m.getTags()) && "sync-7".equals(m.getKeys()), "tags and keys " + m);
            check(m.getStoreTimestamp() >= m.getBornTimestamp() - 5000, "times " + m);
            await(10, "arrival of a new message", () -> true);
            long before = System.currentTimeMillis();
            p.send(new Message(topic, "TagZ", "late", utf8("late")));
            await(5, "a late message through the long poll", () -> got.containsKey("late"));
            check(System.currentTimeMillis() - before < 5000, "late arrival");
        } finally {
            c.shutdown();
            p.shutdown();
        }
    }

    static void largeAndUnicode() throws Exception {
        String topic = "Cf_" + run + "_large", group = "CfG_" + run + "_large";
        DefaultMQProducer p = producer("CfP_" + run);
        p.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        byte[] big = new byte[4 * 1024 * 1024];
        new Random(7).nextBytes(big);
        Map<String, byte[]> want = new HashMap<>();
        p.send(new Message(topic, "", "big", big), 30000);
        want.put("big", big);
        String text = "\u6d88\u606f \ud83d\ude80 \u00e9 \u0000 quote\" back\\slash";
        Message u = new Message(topic, "\u6807\u7b7e", "unicode", utf8(text));
        u.putUserProperty("name", "\u540d\u5b57\ud83d\ude80");
        p.send(u);
        want.put("unicode", utf8(text));
        Message props = new Message(topic, "T", "props", utf8("x"));
        StringBuilder sb = new StringBuilder();
        for (int i = 0; i < 31000; i++) sb.append((char) ('a' + i % 26));
        props.putUserProperty("long", sb.toString());
        p.send(props);
        want.put("props", utf8("x"));
        Map<String, MessageExt> got = new ConcurrentHashMap<>();
        DefaultMQPushConsumer c = push(group, topic, "*");
        c.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
            for (MessageExt m : msgs) got.put(m.getKeys(), m);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        try {
            await(30, "three messages; have " + got.keySet(), () -> got.size() == 3);
            for (Map.Entry<String, byte[]> e : want.entrySet())
                check(Arrays.equals(e.getValue(), got.get(e.getKey()).getBody()), "body of " + e.getKey());
            check("\u540d\u5b57\ud83d\ude80".equals(got.get("unicode").getUserProperty("name")), "unicode property");
            check("\u6807\u7b7e".equals(got.get("unicode").getTags()), "unicode tag");
            check(sb.toString().equals(got.get("props").getUserProperty("long")), "long property");
        } finally {
            c.shutdown();
            p.shutdown();
        }
    }

    static void limits() throws Exception {
        String topic = "Cf_" + run + "_limits";
        DefaultMQProducer p = producer("CfP_" + run);
        p.setMaxMessageSize(8 * 1024 * 1024);
        p.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        try {
            p.send(new Message(topic, utf8("first")));
            byte[] over = new byte[4 * 1024 * 1024 + 1];
            try {
                p.send(new Message(topic, over), 30000);
                check(false, "a body above the limit was taken");
            } catch (MQBrokerException e) {
                check(e.getResponseCode() == 13, "code of a body above the limit: " + e);
            }
            p.send(new Message(topic, utf8("same connection still works")));
            try {
                p.send(new Message("SCHEDULE_TOPIC_XXXX", utf8("x")));
                check(false, "a system topic took a message");
            } catch (MQClientException | MQBrokerException e) {
                // refused by client or broker
            }
        } finally {
            p.shutdown();
        }
    }

    static void compressed() throws Exception {
        String topic = "Cf_" + run + "_zip", group = "CfG_" + run + "_zip";
        DefaultMQProducer p = producer("CfP_" + run);
        int[] sizes = {1, 4095, 4096, 4097, 100_000, 1 << 20};
        Map<String, byte[]> want = new HashMap<>();
        for (int size : sizes) {
            byte[] zero = new byte[size], mixed = new byte[size];
            Random r = new Random(size);
            for (int i = 0; i < size; i++) mixed[i] = (byte) ("abcdef".charAt(r.nextInt(6)));
            want.put("zero" + size, zero);
            want.put("mixed" + size, mixed);
        }
        for (Map.Entry<String, byte[]> e : want.entrySet()) p.send(new Message(topic, "Z", e.getKey(), e.getValue()));
        Map<String, MessageExt> got = new ConcurrentHashMap<>();
        DefaultMQPushConsumer c = push(group, topic, "Z");
        c.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
            for (MessageExt m : msgs) got.put(m.getKeys(), m);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        try {
            await(30, "compressed bodies", () -> got.size() == want.size());
            for (Map.Entry<String, byte[]> e : want.entrySet())
                check(Arrays.equals(e.getValue(), got.get(e.getKey()).getBody()), "body of " + e.getKey());
        } finally {
            c.shutdown();
            p.shutdown();
        }
    }

    static void ordered() throws Exception {
        String topic = "Cf_" + run + "_order", group = "CfG_" + run + "_order";
        DefaultMQProducer p = producer("CfP_" + run);
        int orders = 12, steps = 25;
        for (int s = 0; s < steps; s++)
            for (int o = 0; o < orders; o++)
                p.send(new Message(topic, "T", "o" + o, utf8(o + ":" + s)), new SelectMessageQueueByHash(), "o" + o);
        Map<Integer, List<Integer>> seen = new ConcurrentHashMap<>();
        AtomicInteger count = new AtomicInteger();
        AtomicInteger suspended = new AtomicInteger();
        DefaultMQPushConsumer c = push(group, topic, "*");
        c.setSuspendCurrentQueueTimeMillis(50);
        c.registerMessageListener((MessageListenerOrderly) (msgs, ctx) -> {
            for (MessageExt m : msgs) {
                String[] f = new String(m.getBody(), StandardCharsets.UTF_8).split(":");
                int order = Integer.parseInt(f[0]), step = Integer.parseInt(f[1]);
                if (order == 3 && step == 5 && suspended.getAndIncrement() == 0) return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                seen.computeIfAbsent(order, k -> Collections.synchronizedList(new ArrayList<>())).add(step);
                count.incrementAndGet();
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        c.start();
        try {
            await(60, "ordered messages", () -> count.get() >= orders * steps);
            for (int o = 0; o < orders; o++)
                for (int s = 0; s < steps; s++) check(seen.get(o).get(s) == s, "order " + o + " saw " + seen.get(o));
            check(suspended.get() > 0, "no suspend happened");
        } finally {
            c.shutdown();
            p.shutdown();
        }
    }

    static void tags() throws Exception {
        String topic = "Cf_" + run + "_tags", group = "CfG_" + run + "_tags";
        DefaultMQProducer p = producer("CfP_" + run);
        String[] tags = {"Aa", "BB", "C", "D"};
        for (int i = 0; i < 80; i++) p.send(new Message(topic, tags[i % 4], "k" + i, utf8(tags[i % 4])));
        p.send(new Message(topic, null, utf8("none")));
        List<String> got = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer c = push(group, topic, "Aa || C");
        c.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
            for (MessageExt m : msgs) got.add(m.getTags());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        try {
            await(30, "tagged messages", () -> got.size() >= 40);
            Thread.sleep(500);
            check(got.size() == 40, "received " + got.size());
            check(!got.contains("BB") && !got.contains("D"), "a foreign tag came through");
        } finally {
            c.shutdown();
            p.shutdown();
        }
    }

    static void retryToDlq() throws Exception {
        String topic = "Cf_" + run + "_dlq", group = "CfG_" + run + "_dlq";
        DefaultMQProducer p = producer("CfP_" + run);
        p.send(new Message(topic, "T", "poison", utf8("poison")));
        AtomicInteger attempts = new AtomicInteger();
        List<Integer> times = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer c = push(group, topic, "T");
        c.setMaxReconsumeTimes(2);
        c.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
            attempts.incrementAndGet();
            times.add(msgs.get(0).getReconsumeTimes());
            check(msgs.get(0).getTopic().equals(topic), "topic of a retried message " + msgs.get(0).getTopic());
            ctx.setDelayLevelWhenNextConsume(1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        c.start();
        List<MessageExt> dead = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer d = null;
        try {
            await(40, "three attempts", () -> attempts.get() == 3);
            Thread.sleep(1500);
            d = push(group + "_dead", "%DLQ%" + group, "*");
            d.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
                dead.addAll(msgs);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            d.start();
            await(40, "the dead letter", () -> dead.size() == 1);
            check(attempts.get() == 3 && times.equals(Arrays.asList(0, 1, 2)), "attempts " + times);
            check("poison".equals(new String(dead.get(0).getBody(), StandardCharsets.UTF_8)), "body of the dead letter");
        } finally {
            c.shutdown();
            if (d != null) d.shutdown();
            p.shutdown();
        }
    }

    static void retryOnce() throws Exception {
        String topic = "Cf_" + run + "_retry", group = "CfG_" + run + "_retry";
        DefaultMQProducer p = producer("CfP_" + run);
        for (int i = 0; i < 10; i++) p.send(new Message(topic, "T", "k" + i, utf8("m" + i)));
        Map<String, Integer> ok = new ConcurrentHashMap<>();
        DefaultMQPushConsumer c = push(group, topic, "T");
        c.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
            MessageExt m = msgs.get(0);
            if (m.getReconsumeTimes() == 0) {
                ctx.setDelayLevelWhenNextConsume(1);
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            ok.put(new String(m.getBody(), StandardCharsets.UTF_8), m.getReconsumeTimes());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        try {
            await(40, "ten retried messages", () -> ok.size() == 10);
            for (int n : ok.values()) check(n == 1, "reconsume times " + ok);
        } finally {
            c.shutdown();
            p.shutdown();
        }
    }

    static void orderlyRetryToDlq() throws Exception {
        String topic = "Cf_" + run + "_odlq", group = "CfG_" + run + "_odlq";
        DefaultMQProducer p = producer("CfP_" + run);
        p.send(new Message(topic, utf8("warm")));
        for (int i = 0; i < 3; i++) p.send(new Message(topic, "T", "k" + i, utf8("m" + i)), (q, m, a) -> q.get(0), null);
        Map<String, AtomicInteger> attempts = new ConcurrentHashMap<>();
        DefaultMQPushConsumer c = push(group, topic, "T");
        c.setMaxReconsumeTimes(1);
        c.setSuspendCurrentQueueTimeMillis(50);
        c.registerMessageListener((MessageListenerOrderly) (msgs, ctx) -> {
            attempts.computeIfAbsent(msgs.get(0).getKeys(), k -> new AtomicInteger()).incrementAndGet();
            return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
        });
        c.start();
        try {
            await(40, "all three messages were tried", () -> attempts.size() == 3 && attempts.get("k2").get() >= 2);
            for (AtomicInteger n : attempts.values()) check(n.get() <= 4, "attempts " + attempts);
        } finally {
            c.shutdown();
            p.shutdown();
        }
    }

    static void delayLevel() throws Exception {
        String topic = "Cf_" + run + "_delay", group = "CfG_" + run + "_delay";
        DefaultMQProducer p = producer("CfP_" + run);
        Map<String, Long> got = new ConcurrentHashMap<>();
        DefaultMQPushConsumer c = push(group, topic, "*");
        c.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
            for (MessageExt m : msgs) got.put(new String(m.getBody(), StandardCharsets.UTF_8), System.currentTimeMillis());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        p.send(new Message(topic, utf8("now")));
        c.start();
        try {
            await(20, "the plain message", () -> got.containsKey("now"));
            long t0 = System.currentTimeMillis();
            for (int level = 1; level <= 2; level++) {
                Message m = new Message(topic, utf8("level" + level));
                m.setDelayTimeLevel(level);
                check(p.send(m).getSendStatus() == SendStatus.SEND_OK, "delayed send");
            }
            await(20, "two delayed messages", () -> got.containsKey("level1") && got.containsKey("level2"));
            check(got.get("level1") - t0 >= 990 && got.get("level2") - t0 >= 4990, "too early: " + (got.get("level1") - t0) + ", " + (got.get("level2") - t0));
        } finally {
            c.shutdown();
            p.shutdown();
        }
    }

    static void litePull() throws Exception {
        String topic = "Cf_" + run + "_lite", group = "CfG_" + run + "_lite";
        DefaultMQProducer p = producer("CfP_" + run);
        for (int i = 0; i < 100; i++) p.send(new Message(topic, "T", "k" + i, utf8("m" + i)));
        DefaultLitePullConsumer c = new DefaultLitePullConsumer(group);
        c.setNamesrvAddr(nameServers);
        c.setInstanceName(group);
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        c.subscribe(topic, "*");
        c.start();
        try {
            Set<String> got = new HashSet<>();
            long end = System.currentTimeMillis() + 30000;
            while (got.size() < 100 && System.currentTimeMillis() < end)
                for (MessageExt m : c.poll(1000)) got.add(new String(m.getBody(), StandardCharsets.UTF_8));
            check(got.size() == 100, "polled " + got.size());
        } finally {
            c.shutdown();
        }
        DefaultLitePullConsumer a = new DefaultLitePullConsumer(group + "_assign");
        a.setNamesrvAddr(nameServers);
        a.setInstanceName(group + "_assign");
        a.start();
        try {
            Collection<MessageQueue> queues = a.fetchMessageQueues(topic);
            a.assign(queues);
            for (MessageQueue q : queues) a.seekToBegin(q);
            Set<String> got = new HashSet<>();
            long end = System.currentTimeMillis() + 30000;
            while (got.size() < 100 && System.currentTimeMillis() < end)
                for (MessageExt m : a.poll(1000)) got.add(new String(m.getBody(), StandardCharsets.UTF_8));
            check(got.size() == 100, "assigned poll got " + got.size());
            MessageQueue q0 = queues.iterator().next();
            long byTime = a.offsetForTimestamp(q0, 0L);
            check(byTime == 0, "offset for time 0: " + byTime);
        } finally {
            a.shutdown();
            p.shutdown();
        }
    }

    @SuppressWarnings("deprecation")
    static void pull() throws Exception {
        String topic = "Cf_" + run + "_pull", group = "CfG_" + run + "_pull";
        DefaultMQProducer p = producer("CfP_" + run);
        for (int i = 0; i < 64; i++) p.send(new Message(topic, "T", "k" + i, utf8("m" + i)), (q, m, a) -> q.get(0), null);
        DefaultMQPullConsumer c = new DefaultMQPullConsumer(group);
        c.setNamesrvAddr(nameServers);
        c.setInstanceName(group);
        c.start();
        try {
            MessageQueue q0 = null;
            for (MessageQueue q : c.fetchSubscribeMessageQueues(topic)) if (q.getQueueId() == 0) q0 = q;
            check(c.maxOffset(q0) == 64 && c.minOffset(q0) == 0, "bounds " + c.minOffset(q0) + ".." + c.maxOffset(q0));
            PullResult r = c.pull(q0, "*", 10, 20);
            check(r.getPullStatus() == PullStatus.FOUND && r.getNextBeginOffset() == 30, "pull " + r);
            check(r.getMsgFoundList().get(0).getQueueOffset() == 10, "first offset");
            r = c.pull(q0, "*", 64, 20);
            check(r.getPullStatus() == PullStatus.NO_NEW_MSG, "at the end " + r);
            r = c.pull(q0, "*", 1000, 20);
            check(r.getPullStatus() == PullStatus.OFFSET_ILLEGAL && r.getNextBeginOffset() == 64, "beyond the end " + r);
            r = c.pull(q0, "Other", 0, 20);
            check(r.getPullStatus() == PullStatus.NO_MATCHED_MSG && r.getNextBeginOffset() > 0, "no match " + r);
            c.updateConsumeOffset(q0, 33);
            long last = c.searchOffset(q0, System.currentTimeMillis() + 3600_000);
            check(last == 64, "offset of a future time " + last);
        } finally {
            c.shutdown();
            p.shutdown();
        }
    }

    /** The enum lives in another package since 5.0. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    static void setBroadcasting(DefaultMQPushConsumer c) throws Exception {
        for (java.lang.reflect.Method m : c.getClass().getMethods())
            if (m.getName().equals("setMessageModel")) m.invoke(c, Enum.valueOf((Class) m.getParameterTypes()[0], "BROADCASTING"));
    }

    static void broadcast() throws Exception {
        String topic = "Cf_" + run + "_bc", group = "CfG_" + run + "_bc";
        System.setProperty("rocketmq.client.localOffsetStoreDir", System.getProperty("java.io.tmpdir") + "/cf-" + run);
        DefaultMQProducer p = producer("CfP_" + run);
        p.send(new Message(topic, utf8("create")));
        List<Set<String>> got = new ArrayList<>();
        List<DefaultMQPushConsumer> cs = new ArrayList<>();
        try {
            for (int i = 0; i < 2; i++) {
                Set<String> mine = ConcurrentHashMap.newKeySet();
                got.add(mine);
                DefaultMQPushConsumer c = push(group, topic, "*");
                setBroadcasting(c);
                c.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
                    for (MessageExt m : msgs) mine.add(new String(m.getBody(), StandardCharsets.UTF_8));
                    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                });
                c.start();
                cs.add(c);
            }
            for (int i = 0; i < 40; i++) p.send(new Message(topic, utf8("b" + i)));
            await(30, "forty messages at both", () -> got.get(0).size() >= 40 && got.get(1).size() >= 40);
        } finally {
            for (DefaultMQPushConsumer c : cs) c.shutdown();
            p.shutdown();
        }
    }

    static void consumeForever(String group, String topic) throws Exception {
        DefaultMQPushConsumer c = push(group, topic, "*");
        c.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
            for (MessageExt m : msgs) System.out.println("GOT " + new String(m.getBody(), StandardCharsets.UTF_8));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        System.out.println("READY");
        Thread.sleep(Long.MAX_VALUE);
    }

    static void rebalanceAndKill() throws Exception {
        String topic = "Cf_" + run + "_reb", group = "CfG_" + run + "_reb";
        DefaultMQProducer p = producer("CfP_" + run);
        p.send(new Message(topic, utf8("create")));
        Set<String> got = ConcurrentHashMap.newKeySet();
        List<AtomicInteger> counts = new ArrayList<>();
        List<DefaultMQPushConsumer> cs = new ArrayList<>();
        Process child = null;
        try {
            for (int i = 0; i < 2; i++) cs.add(counting(group, topic, got, counts));
            String java = System.getProperty("java.home") + "/bin/java";
            child = new ProcessBuilder(java, "-Xmx128m", "-cp", System.getProperty("java.class.path"), "Conformance", nameServers, "consume-forever", group, topic).redirectErrorStream(true).start();
            Scanner out = new Scanner(child.getInputStream());
            AtomicInteger childGot = new AtomicInteger();
            CountDownLatch ready = new CountDownLatch(1);
            Thread reader = new Thread(() -> {
                while (out.hasNextLine()) {
                    String line = out.nextLine();
                    if (line.equals("READY")) ready.countDown();
                    if (line.startsWith("GOT ")) { got.add(line.substring(4)); childGot.incrementAndGet(); }
                }
            });
            reader.setDaemon(true);
            reader.start();
            check(ready.await(30, TimeUnit.SECONDS), "the third consumer did not start");
            Thread.sleep(3000);
            int n = 0;
            Set<String> sent = new HashSet<>();
            for (; n < 200; n++) { p.send(new Message(topic, utf8("r" + n))); sent.add("r" + n); }
            await(30, "first part", () -> got.containsAll(sent));
            check(childGot.get() > 0, "the third consumer took no queue");
            child.destroyForcibly().waitFor();
            for (; n < 400; n++) { p.send(new Message(topic, utf8("r" + n))); sent.add("r" + n); }
            cs.add(counting(group, topic, got, counts));
            await(60, "everything after a consumer was killed", () -> got.containsAll(sent));
            int[] before = {counts.get(2).get()};
            await(40, "the joined consumer gets work", () -> {
                try { p.send(new Message(topic, utf8("j"))); } catch (Exception e) { return false; }
                return counts.get(2).get() > before[0];
            });
        } finally {
            if (child != null) child.destroyForcibly();
            for (DefaultMQPushConsumer c : cs) c.shutdown();
            p.shutdown();
        }
    }

    static DefaultMQPushConsumer counting(String group, String topic, Set<String> got, List<AtomicInteger> counts) throws Exception {
        AtomicInteger n = new AtomicInteger();
        counts.add(n);
        DefaultMQPushConsumer c = push(group, topic, "*");
        c.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
            for (MessageExt m : msgs) { got.add(new String(m.getBody(), StandardCharsets.UTF_8)); n.incrementAndGet(); }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        return c;
    }

    static void query() throws Exception {
        String topic = "Cf_" + run + "_query";
        DefaultMQProducer p = producer("CfP_" + run);
        try {
            SendResult r = p.send(new Message(topic, "T", "needle other", utf8("found me")));
            MessageExt byId = p.viewMessage(topic, r.getOffsetMsgId());
            check("found me".equals(new String(byId.getBody(), StandardCharsets.UTF_8)), "by offset id");
            AtomicReference<String> last = new AtomicReference<>();
            for (String key : new String[] {"needle", "other"}) {
                await(15, "query by key " + key, () -> {
                    try {
                        QueryResult q = p.queryMessage(topic, key, 10, 0, System.currentTimeMillis() + 10000);
                        return q.getMessageList().size() == 1 && q.getMessageList().get(0).getKeys().equals("needle other");
                    } catch (Exception e) { last.set(e.toString()); return false; }
                });
            }
            MessageExt byUniq = p.viewMessage(topic, r.getMsgId());
            check("found me".equals(new String(byUniq.getBody(), StandardCharsets.UTF_8)), "by unique id");
        } finally {
            p.shutdown();
        }
    }

    static void offsetsSurvive() throws Exception {
        String topic = "Cf_" + run + "_offs", group = "CfG_" + run + "_offs";
        DefaultMQProducer p = producer("CfP_" + run);
        for (int i = 0; i < 40; i++) p.send(new Message(topic, utf8("a" + i)));
        Set<String> first = ConcurrentHashMap.newKeySet(), second = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer c = push(group, topic, "*");
        c.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
            for (MessageExt m : msgs) first.add(new String(m.getBody(), StandardCharsets.UTF_8));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        await(30, "first run", () -> first.size() == 40);
        c.shutdown();
        for (int i = 0; i < 40; i++) p.send(new Message(topic, utf8("b" + i)));
        DefaultMQPushConsumer d = push(group, topic, "*");
        d.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
            for (MessageExt m : msgs) second.add(new String(m.getBody(), StandardCharsets.UTF_8));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        d.start();
        try {
            await(30, "second run", () -> second.size() >= 40);
            Thread.sleep(500);
            for (String s : second) check(s.startsWith("b"), "consumed again: " + s);
        } finally {
            d.shutdown();
            p.shutdown();
        }
    }
}
