package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/epochmq/epochmq/client"
)

// A producer needs a name server and a group. One Client serves any number of producers and consumers.
func ExampleProducer_Send() {
	ctx := context.Background()
	c, err := client.New(client.Config{NameServers: []string{"127.0.0.1:9876"}})
	if err != nil {
		log.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			log.Print(err)
		}
	}()
	p, err := client.NewProducer(c, client.ProducerConfig{Group: "shop"})
	if err != nil {
		log.Fatal(err)
	}
	r, err := p.Send(ctx, &client.Message{Topic: "orders", Body: []byte("two apples"), Keys: []string{"order-17"}, ShardKey: "customer-4"})
	var failed *client.SendError
	switch {
	case errors.As(err, &failed) && failed.Unknown():
		log.Printf("perhaps stored: %v", err)
	case err != nil:
		log.Printf("not stored: %v", err)
	default:
		fmt.Printf("%s at %s@%d\n", r.ID, r.Queue, r.Offset)
	}
	if err := p.Close(ctx); err != nil {
		log.Print(err)
	}
}

// Many messages at once: none waits for the answer to the one before. Close returns when all are answered.
func ExampleProducer_SendAsync() {
	ctx := context.Background()
	c, err := client.New(client.Config{NameServers: []string{"127.0.0.1:9876"}})
	if err != nil {
		log.Fatal(err)
	}
	p, err := client.NewProducer(c, client.ProducerConfig{Group: "shop", Compression: client.CompressZstd})
	if err != nil {
		log.Fatal(err)
	}
	for i := range 1000 {
		m := &client.Message{Topic: "orders", Body: fmt.Appendf(nil, "order %d", i)}
		err := p.SendAsync(ctx, m, func(_ client.Result, err error) {
			if err != nil {
				log.Printf("order %d: %v", i, err)
			}
		})
		if err != nil {
			log.Print(err)
			break
		}
	}
	if err := errors.Join(p.Close(ctx), c.Close()); err != nil {
		log.Print(err)
	}
}

// A consumer's function is called by several goroutines. An error lets the message come back later.
func ExampleConsumer() {
	ctx := context.Background()
	c, err := client.New(client.Config{NameServers: []string{"127.0.0.1:9876"}})
	if err != nil {
		log.Fatal(err)
	}
	n, err := client.NewConsumer(c, client.ConsumerConfig{
		Group:         "billing",
		Subscriptions: map[string]string{"orders": "paid || refunded"},
		From:          client.FromFirst,
	}, func(ctx context.Context, msgs []*client.Received) error {
		for _, m := range msgs {
			if len(m.Body) == 0 {
				return client.DeadLetter(errors.New("nothing in it"))
			}
			fmt.Printf("%s %s\n", m, m.Body)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := n.Start(ctx); err != nil {
		log.Fatal(err)
	}
	time.Sleep(time.Minute) // until the program is told to stop
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := errors.Join(n.Close(ctx), c.Close()); err != nil {
		log.Print(err)
	}
}

// A puller is asked for messages, and told which of them count.
func ExamplePuller() {
	ctx := context.Background()
	c, err := client.New(client.Config{NameServers: []string{"127.0.0.1:9876"}})
	if err != nil {
		log.Fatal(err)
	}
	p, err := client.NewPuller(c, client.PullerConfig{Group: "report", Subscriptions: map[string]string{"orders": "*"}, ManualCommit: true})
	if err != nil {
		log.Fatal(err)
	}
	if err := p.Start(ctx); err != nil {
		log.Fatal(err)
	}
	for range 10 {
		msgs, err := p.Poll(ctx, 100)
		if err != nil {
			log.Print(err)
			break
		}
		fmt.Println(len(msgs), "messages")
		if err := p.Commit(ctx); err != nil {
			log.Print(err)
		}
	}
	if err := errors.Join(p.Close(ctx), c.Close()); err != nil {
		log.Print(err)
	}
}
