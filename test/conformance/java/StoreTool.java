import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.*;

/**
 * Fills a broker with mixed messages, or prints everything that can be read back from it, in a form that two brokers on the same folder
 * must agree on. Usage: fill NAMESERVERS TOPIC COUNT | live NAMESERVERS TOPIC GROUP | dump NAMESERVERS TOPIC[,TOPIC...] GROUP
 * live stays as a consumer of GROUP and a producer until it is killed.
 */
public class StoreTool {
    public static void main(String[] args) throws Exception {
        try {
            switch (args[0]) {
                case "fill": fill(args[1], args[2], Integer.parseInt(args[3])); break;
                case "dump": dump(args[1], args[2].split(","), args[3]); break;
                case "live": live(args[1], args[2], args[3]); break;
                default: throw new IllegalArgumentException(args[0]);
            }
        } catch (Throwable t) {
            t.printStackTrace();
            System.exit(1); // the threads of the clients would keep the program
        }
        System.exit(0);
    }

    static byte[] utf8(String s) { return s.getBytes(StandardCharsets.UTF_8); }

    /** Prints "ACK topic queue offset id" for each message that the broker acknowledged, flushed line by line. */
    static void fill(String ns, String topic, int count) throws Exception {
        DefaultMQProducer p = new DefaultMQProducer("StoreToolP");
        p.setNamesrvAddr(ns);
        p.setInstanceName(UUID.randomUUID().toString());
        p.setSendMsgTimeout(10000);
        p.start();
        DefaultMQPushConsumer c = new DefaultMQPushConsumer("StoreToolG");
        c.setNamesrvAddr(ns);
        c.setInstanceName(UUID.randomUUID().toString());
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        c.setMaxReconsumeTimes(1);
        c.subscribe(topic, "*");
        AtomicInteger seen = new AtomicInteger();
        c.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
            if (seen.incrementAndGet() % 97 == 0) { ctx.setDelayLevelWhenNextConsume(1); return ConsumeConcurrentlyStatus.RECONSUME_LATER; }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        Random rnd = new Random(42);
        // Two folders filled with the same count hold the same messages in the same queues. The first send creates the topic.
        MessageQueueSelector byNumber = (queues, m, arg) -> queues.get((Integer) arg % queues.size());
        List<MessageQueue> queues = null;
        for (int i = 0; i < count; ) {
            if (i % 50 == 49) {
                if (queues == null) {
                    queues = new ArrayList<>(p.fetchPublishMessageQueues(topic));
                    Collections.sort(queues);
                }
                List<Message> batch = new ArrayList<>();
                for (int k = 0; k < 5; k++) batch.add(new Message(topic, "Batch", "b" + i + "_" + k, utf8("batch " + i + " " + k)));
                SendResult r = p.send(batch, queues.get(i % queues.size()));
                String[] ids = r.getOffsetMsgId().split(",");
                for (int k = 0; k < 5; k++) System.out.println("ACK " + topic + " " + r.getMessageQueue().getQueueId() + " " + (r.getQueueOffset() + k) + " " + ids[k]);
                i += 5;
                continue;
            }
            byte[] body = new byte[rnd.nextInt(900) + 1];
            rnd.nextBytes(body);
            if (i % 31 == 0) body = new byte[6000];
            Message m = new Message(topic, "Tag" + i % 3, "k" + i + " shared" + i % 10, body);
            if (i % 7 == 0) m.putUserProperty("name", "\u540d\u5b57\ud83d\ude80" + i);
            boolean delayed = i % 41 == 0 && count > 1000; // few messages end before the first delay does: their order would be by chance
            if (delayed) m.setDelayTimeLevel(1);
            SendResult r = p.send(m, byNumber, i);
            if (!delayed) System.out.println("ACK " + topic + " " + r.getMessageQueue().getQueueId() + " " + r.getQueueOffset() + " " + r.getOffsetMsgId());
            if (i++ == 0) c.start(); // now the topic is there, else the client would look for it again half a minute later
        }
        System.out.println("FILLED");
        // Delayed and retried messages come due, if need be late: nothing may arrive any more when others look.
        // A Java broker writes what it delivered of the delayed ones every second (here), and delivers the rest again after SIGKILL.
        long quiet = 6000, end = System.currentTimeMillis() + 60000, last = -1, since = 0;
        for (long now = 0; now < end && (last < count || now - since < quiet); now = System.currentTimeMillis()) {
            long messages = ends(p, topic), all = messages + ends(p, "%RETRY%StoreToolG");
            if (messages < count || all != last) { last = messages < count ? -1 : all; since = now; }
            Thread.sleep(100);
        }
        c.shutdown();
        p.shutdown();
    }

    /** The messages of a topic; 0 when nothing failed yet and there is no retry topic. */
    static long ends(DefaultMQProducer p, String topic) {
        long n = 0;
        try {
            for (MessageQueue q : p.fetchPublishMessageQueues(topic)) n += p.maxOffset(q);
        } catch (Exception e) {
            return 0;
        }
        return n;
    }

    static void live(String ns, String topic, String group) throws Exception {
        DefaultMQProducer p = new DefaultMQProducer(group + "P");
        p.setNamesrvAddr(ns);
        p.setInstanceName("liveP");
        p.start();
        p.fetchPublishMessageQueues(topic);
        DefaultMQPushConsumer c = new DefaultMQPushConsumer(group);
        c.setNamesrvAddr(ns);
        c.setInstanceName("live");
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        c.setPersistConsumerOffsetInterval(500);
        c.subscribe(topic, "*");
        c.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
            for (MessageExt m : msgs) System.out.println("GOT " + m.getQueueId() + " " + m.getQueueOffset());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        System.out.println("READY " + c.buildMQClientId());
        Thread.sleep(Long.MAX_VALUE);
    }

    @SuppressWarnings("deprecation")
    static void dump(String ns, String[] topics, String group) throws Exception {
        DefaultMQPullConsumer c = new DefaultMQPullConsumer(group);
        c.setNamesrvAddr(ns);
        c.setInstanceName(UUID.randomUUID().toString());
        c.start();
        for (String topic : topics) {
            List<MessageQueue> queues = new ArrayList<>(c.fetchSubscribeMessageQueues(topic));
            Collections.sort(queues);
            List<MessageExt> all = new ArrayList<>();
            for (MessageQueue q : queues) {
                long min = c.minOffset(q), max = c.maxOffset(q);
                System.out.println("QUEUE " + topic + " " + q.getQueueId() + " " + min + " " + max + " committed " + c.fetchConsumeOffset(q, true));
                long next = min;
                while (next < max) {
                    PullResult r = c.pull(q, "*", next, 32);
                    if (r.getPullStatus() == PullStatus.FOUND) {
                        for (MessageExt m : r.getMsgFoundList()) { print(topic, m); all.add(m); }
                    }
                    if (r.getNextBeginOffset() <= next) throw new IllegalStateException("stuck at " + q + " " + next + " " + r);
                    next = r.getNextBeginOffset();
                }
                for (int i = 0; i < all.size(); i += Math.max(1, all.size() / 8)) {
                    long t = all.get(i).getStoreTimestamp();
                    for (long d = -1; d <= 1; d++) System.out.println("TIME " + topic + " " + q.getQueueId() + " " + (t + d) + " " + c.searchOffset(q, t + d));
                }
                System.out.println("TIME " + topic + " " + q.getQueueId() + " 0 " + c.searchOffset(q, 0) + " earliest " + c.earliestMsgStoreTime(q));
            }
            for (int i = 0; i < all.size(); i += Math.max(1, all.size() / 50)) {
                String keys = all.get(i).getKeys();
                if (keys == null) continue;
                String key = keys.split(" ")[0];
                List<String> ids = new ArrayList<>();
                try {
                    QueryResult r = c.queryMessage(topic, key, 32, 0, Long.MAX_VALUE);
                    for (MessageExt m : r.getMessageList()) ids.add(((MessageClientExt) m).getOffsetMsgId());
                } catch (Exception e) {
                    ids.add(e.getClass().getSimpleName());
                }
                Collections.sort(ids);
                System.out.println("KEY " + topic + " " + key + " " + ids);
            }
        }
        c.shutdown();
    }

    static void print(String topic, MessageExt m) {
        CRC32 crc = new CRC32();
        crc.update(m.getBody());
        TreeMap<String, String> props = new TreeMap<>(m.getProperties());
        props.remove("MIN_OFFSET");
        props.remove("MAX_OFFSET");
        System.out.println("MSG " + topic + " " + m.getQueueId() + " " + m.getQueueOffset() + " " + ((MessageClientExt) m).getOffsetMsgId() + " "
            + m.getBody().length + " " + Long.toHexString(crc.getValue()) + " " + m.getSysFlag() + " " + m.getFlag() + " " + m.getReconsumeTimes() + " "
            + m.getBornTimestamp() + " " + m.getStoreTimestamp() + " " + m.getBornHostString() + " " + m.getStoreHost() + " " + m.getPreparedTransactionOffset() + " " + props);
    }
}
