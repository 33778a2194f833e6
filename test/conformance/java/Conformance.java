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
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Scenarios of an ordinary application, run with an unmodified Java client. Prints "PASS name" or "FAIL name reason" per scenario. */
public class Conformance {
    static String nameServers;
    static String run = Long.toString(System.currentTimeMillis() % 100000000L, 36);
    static int failures;
    /** Set when a real broker answers, to check the scenarios themselves. */
    static final boolean ORACLE = Boolean.getBoolean("oracle");

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
        all.put("properties-limit", Conformance::propertiesLimit);
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
        all.put("filtered-progress", Conformance::filteredProgress);
        all.put("queue-counts", Conformance::queueCounts);
        all.put("permissions", Conformance::permissions);
        all.put("recreate-topic", Conformance::recreateTopic);
        all.put("admin-live", Conformance::adminLive);
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
            await(60, "all messages; have " + got.size() + " of " + sent.size(), () -> got.keySet().containsAll(sent));
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
            await(60, "three messages; have " + got.keySet(), () -> got.size() == 3);
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
            await(60, "compressed bodies", () -> got.size() == want.size());
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
            await(60, "tagged messages", () -> got.size() >= 40);
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
        AtomicLong lastFailure = new AtomicLong();
        List<Integer> times = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer c = push(group, topic, "T");
        c.setMaxReconsumeTimes(2);
        c.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
            attempts.incrementAndGet();
            times.add(msgs.get(0).getReconsumeTimes());
            check(msgs.get(0).getTopic().equals(topic), "topic of a retried message " + msgs.get(0).getTopic());
            ctx.setDelayLevelWhenNextConsume(2);
            lastFailure.set(System.currentTimeMillis());
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        c.start();
        List<MessageExt> dead = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer d = null;
        try {
            await(60, "three attempts", () -> attempts.get() == 3);
            Thread.sleep(1500);
            d = push(group + "_dead", "%DLQ%" + group, "*");
            d.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
                dead.addAll(msgs);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            d.start();
            await(60, "the dead letter", () -> dead.size() == 1);
            check(attempts.get() == 3 && times.equals(Arrays.asList(0, 1, 2)), "attempts " + times);
            check("poison".equals(new String(dead.get(0).getBody(), StandardCharsets.UTF_8)), "body of the dead letter");
            long after = dead.get(0).getStoreTimestamp() - lastFailure.get();
            check(after >= -50 && after <= 1000, "the dead letter was stored " + after + " ms after the last failure");
            check(p.fetchPublishMessageQueues("%DLQ%" + group).size() == 1, "queues of the dead-letter topic");
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
            await(60, "ten retried messages", () -> ok.size() == 10);
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
            await(60, "all three messages were tried", () -> attempts.size() == 3 && attempts.get("k2").get() >= 2);
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
            check(last == 64 || ORACLE && last == 63, "offset of a future time " + last); // 63 from RocketMQ 4.9
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
            await(60, "forty messages at both", () -> got.get(0).size() >= 40 && got.get(1).size() >= 40);
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
            check(ready.await(60, TimeUnit.SECONDS), "the third consumer did not start");
            Thread.sleep(3000);
            int n = 0;
            Set<String> sent = new HashSet<>();
            for (; n < 200; n++) { p.send(new Message(topic, utf8("r" + n))); sent.add("r" + n); }
            await(60, "first part", () -> got.containsAll(sent));
            check(childGot.get() > 0, "the third consumer took no queue");
            child.destroyForcibly().waitFor();
            for (; n < 400; n++) { p.send(new Message(topic, utf8("r" + n))); sent.add("r" + n); }
            cs.add(counting(group, topic, got, counts));
            await(60, "everything after a consumer was killed", () -> got.containsAll(sent));
            int[] before = {counts.get(2).get()};
            await(60, "the joined consumer gets work", () -> {
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
        await(60, "first run", () -> first.size() == 40);
        Thread.sleep(200); // the listener of the last message returns
        c.shutdown();
        for (int i = 0; i < 40; i++) p.send(new Message(topic, utf8("b" + i)));
        DefaultMQPushConsumer d = push(group, topic, "*");
        d.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
            for (MessageExt m : msgs) second.add(new String(m.getBody(), StandardCharsets.UTF_8));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        d.start();
        try {
            await(60, "second run", () -> second.size() >= 40);
            Thread.sleep(500);
            for (String s : second) check(s.startsWith("b"), "consumed again: " + s);
        } finally {
            d.shutdown();
            p.shutdown();
        }
    }

    /** The stored properties of a message may have 32767 bytes; the longest is read back as it was, and one byte more is refused. */
    static void propertiesLimit() throws Exception {
        String topic = "Cf_" + run + "_pl";
        DefaultMQProducer p = producer("CfP_" + run);
        DefaultMQPullConsumer c = pullConsumer("CfG_" + run + "_pl");
        try {
            p.send(new Message(topic, utf8("create")));
            int low = 30000, high = 33000; // low is taken, high is refused
            SendResult last = null;
            while (high - low > 1) {
                int size = (low + high) / 2;
                Message m = new Message(topic, "T", "k", utf8("x"));
                m.putUserProperty("long", "y".repeat(size));
                try {
                    SendResult r = p.send(m, (q, x, a) -> q.get(0), null);
                    low = size;
                    last = r;
                } catch (MQBrokerException e) {
                    check(e.getResponseCode() == 13, "code of too long properties: " + e);
                    high = size;
                }
            }
            MessageExt m = p.viewMessage(topic, last.getOffsetMsgId());
            check(m.getUserProperty("long").equals("y".repeat(low)), "the longest property reads back with " + m.getUserProperty("long").length() + " characters");
            m.getProperties().remove("MIN_OFFSET");
            m.getProperties().remove("MAX_OFFSET");
            int total = utf8(MessageDecoder.messageProperties2String(m.getProperties())).length;
            System.out.println("INFO the longest property has " + low + " characters, all together " + total);
            check(total >= 32767 - 1 && total <= 32767 + 1, "the longest properties have " + total + " bytes");
        } finally {
            c.shutdown();
            p.shutdown();
        }
    }

    @SuppressWarnings("deprecation")
    static DefaultMQPullConsumer pullConsumer(String group) throws Exception {
        DefaultMQPullConsumer c = new DefaultMQPullConsumer(group);
        c.setNamesrvAddr(nameServers);
        c.setInstanceName(group + "-" + UUID.randomUUID());
        c.start();
        return c;
    }

    static DefaultMQAdminExt admin() throws Exception {
        DefaultMQAdminExt a = new DefaultMQAdminExt();
        a.setNamesrvAddr(nameServers);
        a.setInstanceName("admin-" + UUID.randomUUID());
        a.start();
        return a;
    }

    static String broker(DefaultMQAdminExt a) throws Exception {
        return a.examineTopicRouteInfo("TBW102").getBrokerDatas().get(0).selectBrokerAddr();
    }

    static void topic(DefaultMQAdminExt a, String name, int read, int write, int perm) throws Exception {
        a.createAndUpdateTopicConfig(broker(a), new TopicConfig(name, read, write, perm));
        await(10, "the route of " + name, () -> {
            try {
                var q = a.examineTopicRouteInfo(name).getQueueDatas().get(0);
                return q.getReadQueueNums() == read && q.getWriteQueueNums() == write && q.getPerm() == perm;
            } catch (Exception e) { return false; }
        });
    }

    static long lag(DefaultMQAdminExt a, String group, String topic) {
        try { return a.examineConsumeStats(group, topic).computeTotalDiff(); } catch (Exception e) { return Long.MAX_VALUE; }
    }

    /** Colliding tags are told apart, a queue in which nothing matches is passed over, and retries are not filtered away. */
    static void filteredProgress() throws Exception {
        String topic = "Cf_" + run + "_fp", group = "CfG_" + run + "_fp";
        DefaultMQProducer p = producer("CfP_" + run);
        DefaultMQAdminExt a = admin();
        List<String> got = Collections.synchronizedList(new ArrayList<>());
        AtomicInteger failed = new AtomicInteger();
        p.send(new Message(topic, "Aa", utf8("first")));
        DefaultMQPushConsumer c = push(group, topic, "Aa");
        c.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
            for (MessageExt m : msgs) {
                if ("fail".equals(m.getKeys()) && failed.getAndIncrement() == 0) {
                    ctx.setDelayLevelWhenNextConsume(1);
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                got.add(m.getTags() + ":" + new String(m.getBody(), StandardCharsets.UTF_8));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        try {
            await(60, "the first message", () -> got.contains("Aa:first"));
            for (int i = 0; i < 1000; i++) p.sendOneway(new Message(topic, "BB", utf8("collides")));
            p.send(new Message(topic, "", utf8("empty tag")));
            p.send(new Message(topic, null, utf8("no tag")));
            p.send(new Message(topic, "Aa", "fail", utf8("again")));
            await(60, "the retried message; have " + got, () -> got.contains("Aa:again"));
            await(60, "no lag when everything was filtered; lag " + lag(a, group, topic), () -> lag(a, group, topic) == 0);
            check(got.size() == 2 && failed.get() == 2, "received " + got + " with " + failed + " deliveries of the failing one");
        } finally {
            c.shutdown();
            a.shutdown();
            p.shutdown();
        }
    }

    /** Read and write queue counts that differ, and queue ids that do not exist. */
    static void queueCounts() throws Exception {
        String topic = "Cf_" + run + "_qc", group = "CfG_" + run + "_qc";
        DefaultMQAdminExt a = admin();
        topic(a, topic, 4, 8, 6);
        DefaultMQProducer p = producer("CfP_" + run);
        Set<String> got = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer c = push(group, topic, "*");
        c.setPollNameServerInterval(1000);
        c.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
            for (MessageExt m : msgs) got.add(new String(m.getBody(), StandardCharsets.UTF_8));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        try {
            List<MessageQueue> queues = new ArrayList<>(p.fetchPublishMessageQueues(topic));
            check(queues.size() == 8, "queues to write " + queues);
            for (int round = 0; round < 5; round++)
                for (MessageQueue q : queues) p.send(new Message(topic, utf8(q.getQueueId() + "-" + round)), q);
            c.start();
            await(60, "queues 0 to 3", () -> got.size() >= 20);
            Thread.sleep(500);
            for (String s : got) check(s.charAt(0) < '4', "a queue that must not be read: " + s);
            topic(a, topic, 8, 8, 6);
            await(60, "queues 4 to 7 after enlarging; have " + got.size(), () -> got.size() == 40);
            topic(a, topic, 8, 2, 6);
            String name = queues.get(0).getBrokerName();
            p.send(new Message(topic, utf8("7-late")), new MessageQueue(topic, name, 7)); // still readable, so it is taken
            await(60, "a message of a queue that is not advertised for writing", () -> got.contains("7-late"));
            try {
                p.send(new Message(topic, utf8("x")), new MessageQueue(topic, name, 100));
                check(false, "queue 100 was taken");
            } catch (MQBrokerException e) {
                check(e.getResponseCode() == 29 || e.getResponseCode() == 1, "code of queue 100: " + e); // 1 from RocketMQ 4.9
            }
            SendResult any = p.send(new Message(topic, utf8("any")), new MessageQueue(topic, name, -1));
            check(any.getMessageQueue().getQueueId() >= 0 && any.getMessageQueue().getQueueId() < 2, "queue -1 became " + any);
            await(60, "the message of queue -1", () -> got.contains("any"));
        } finally {
            c.shutdown();
            p.shutdown();
            a.shutdown();
        }
    }

    /** Topics that may not be written or read. */
    @SuppressWarnings("deprecation")
    static void permissions() throws Exception {
        String topic = "Cf_" + run + "_perm";
        DefaultMQAdminExt a = admin();
        topic(a, topic, 1, 1, 6);
        DefaultMQProducer p = producer("CfP_" + run);
        DefaultMQPullConsumer c = pullConsumer("CfG_" + run + "_perm");
        try {
            SendResult r = p.send(new Message(topic, utf8("one")));
            MessageQueue q = r.getMessageQueue();
            check(c.pull(q, "*", 0, 1).getPullStatus() == PullStatus.FOUND, "pull with permission 6");
            topic(a, topic, 1, 1, 4);
            try {
                p.send(new Message(topic, utf8("two")), q);
                // RocketMQ leaves the permission of a topic to the clients, which drop its queues from the route.
                check(ORACLE, "a topic with permission 4 took a message");
            } catch (MQBrokerException e) {
                check(e.getResponseCode() == 16, "code of a send: " + e);
            }
            check(c.pull(q, "*", 0, 1).getPullStatus() == PullStatus.FOUND, "pull with permission 4");
            topic(a, topic, 1, 1, 2);
            p.send(new Message(topic, utf8("two")), q);
            try {
                c.pull(q, "*", 0, 1);
                check(false, "a topic with permission 2 was read");
            } catch (MQBrokerException e) {
                check(e.getResponseCode() == 16, "code of a pull: " + e);
            }
            topic(a, topic, 1, 1, 6);
            check(c.maxOffset(q) == (ORACLE ? 3 : 2) && c.pull(q, "*", 1, 1).getPullStatus() == PullStatus.FOUND, "pull after the permission came back");
        } finally {
            c.shutdown();
            p.shutdown();
            a.shutdown();
        }
    }

    /** A topic that is deleted and made again starts empty: its group reads what comes then, and its lag is never negative. */
    static void recreateTopic() throws Exception {
        String topic = "Cf_" + run + "_del", group = "CfG_" + run + "_del";
        DefaultMQAdminExt a = admin();
        topic(a, topic, 4, 4, 6);
        DefaultMQProducer p = producer("CfP_" + run);
        Set<String> got = ConcurrentHashMap.newKeySet();
        MessageListenerConcurrently listener = (msgs, ctx) -> {
            for (MessageExt m : msgs) got.add(new String(m.getBody(), StandardCharsets.UTF_8));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
        DefaultMQPushConsumer c = push(group, topic, "*"), d = null;
        c.registerMessageListener(listener);
        c.setPersistConsumerOffsetInterval(500);
        try {
            for (int i = 0; i < 100; i++) p.send(new Message(topic, utf8("old" + i)));
            c.start();
            await(60, "the old messages", () -> got.size() == 100);
            await(60, "their offsets", () -> lag(a, group, topic) == 0);
            c.shutdown();
            Set<String> brokers = new HashSet<>(Arrays.asList(broker(a))), servers = new HashSet<>(Arrays.asList(nameServers.split(";")));
            a.deleteTopicInBroker(brokers, topic);
            a.deleteTopicInNameServer(servers, "DefaultCluster", topic);
            try {
                a.examineTopicRouteInfo(topic);
                check(ORACLE, "the deleted topic has a route"); // RocketMQ 4.9 leaves one for a while
            } catch (MQClientException e) {
                check(e.getResponseCode() == 17, "code of a deleted topic: " + e);
            }
            topic(a, topic, 4, 4, 6);
            for (MessageQueue q : p.fetchPublishMessageQueues(topic)) check(p.maxOffset(q) == 0, "the new topic holds old messages");
            for (int i = 0; i < 10; i++) p.send(new Message(topic, utf8("new" + i)));
            d = push(group, topic, "*");
            d.registerMessageListener(listener);
            d.setPersistConsumerOffsetInterval(500);
            d.start();
            await(60, "the new messages", () -> got.size() == 110);
            await(60, "no lag; it is " + lag(a, group, topic), () -> {
                check(lag(a, group, topic) >= 0, "the lag is negative");
                return lag(a, group, topic) == 0;
            });
        } finally {
            if (d != null) d.shutdown();
            p.shutdown();
            a.shutdown();
        }
    }

    /** What an operator does with a running client through the broker. */
    static void adminLive() throws Exception {
        String topic = "Cf_" + run + "_live", group = "CfG_" + run + "_live", producers = "CfP_" + run + "_live";
        DefaultMQAdminExt a = admin();
        DefaultMQProducer p = producer(producers);
        SendResult first = p.send(new Message(topic, "T", "first", utf8("m0")));
        Map<String, AtomicInteger> got = new ConcurrentHashMap<>();
        DefaultMQPushConsumer c = push(group, topic, "*");
        c.setPersistConsumerOffsetInterval(500);
        c.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
            for (MessageExt m : msgs) got.computeIfAbsent(new String(m.getBody(), StandardCharsets.UTF_8), k -> new AtomicInteger()).incrementAndGet();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        try {
            for (int i = 1; i < 40; i++) p.send(new Message(topic, "T", "k" + i, utf8("m" + i)));
            await(60, "forty messages", () -> got.size() == 40);
            await(60, "their offsets", () -> lag(a, group, topic) == 0);
            var consumers = a.examineConsumerConnectionInfo(group);
            check(consumers.getConnectionSet().size() == 1 && consumers.getSubscriptionTable().containsKey(topic), "consumers " + consumers.getConnectionSet());
            String client = consumers.getConnectionSet().iterator().next().getClientId();
            check(client.equals(c.buildMQClientId()), "client " + client);
            check(a.examineProducerConnectionInfo(producers, topic).getConnectionSet().size() == 1, "producers");
            check(a.queryTopicConsumeByWho(topic).getGroupList().contains(group), "readers of the topic");

            var info = a.getConsumerRunningInfo(group, client, true);
            check(info.getSubscriptionSet().size() == 2 && info.getJstack() != null && info.getJstack().contains("STATE"), "running info " + info.getSubscriptionSet() + info.getJstack());
            check(a.getConsumeStatus(topic, group, "").get(client).size() == 4, "status of the client");

            var direct = a.consumeMessageDirectly(group, client, topic, first.getOffsetMsgId());
            check(direct.getConsumeResult().name().equals("CR_SUCCESS"), "consumed directly: " + direct);
            check(got.get("m0").get() == 2, "the message reached the listener " + got.get("m0") + " times");

            a.resetOffsetByTimestamp(topic, group, 0, true);
            await(60, "everything again after a reset to the begin; have " + got, () -> {
                for (Map.Entry<String, AtomicInteger> e : got.entrySet()) if (e.getValue().get() < (e.getKey().equals("m0") ? 3 : 2)) return false;
                return true;
            });
            await(60, "no lag", () -> lag(a, group, topic) == 0);
            c.suspend();
            Thread.sleep(1500);
            for (int i = 0; i < 20; i++) p.send(new Message(topic, utf8("n" + i)));
            Thread.sleep(200);
            a.resetOffsetByTimestamp(topic, group, System.currentTimeMillis() + 60000, true);
            c.resume();
            p.send(new Message(topic, utf8("after")));
            await(60, "a message after the reset to the end", () -> got.containsKey("after"));
            int skipped = 20;
            for (String s : got.keySet()) if (s.startsWith("n")) skipped--;
            System.out.println("INFO " + skipped + " of 20 messages were skipped by a reset to the end");
            await(60, "no lag", () -> lag(a, group, topic) == 0);
        } finally {
            c.shutdown();
            p.shutdown();
            a.shutdown();
        }
    }
}
