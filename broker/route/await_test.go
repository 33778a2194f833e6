package route_test

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/broker/route"
	"github.com/epochmq/epochmq/broker/topic"
)

func TestAwait(t *testing.T) {
	changed := topic.Change{Updated: []*topic.Config{topic.NewConfig("t1", 8)}, Version: topic.Version{Counter: 6}}
	for _, c := range []struct {
		name string
		s    *servers
		want time.Duration
		told int // registrations of the change at n1
	}{
		{"told", &servers{}, 0, 1},
		{"a name server that fails is not waited for", &servers{down: map[string]error{"n2": errors.New("refused")}}, 0, 1},
		{"a name server that hangs is waited for up to the limit", &servers{hang: map[string]bool{"n2": true}}, time.Second, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := route.New(config("n1", "n2"), c.s, topics(), nil, slog.New(slog.DiscardHandler))
				r.Start()
				synctest.Wait()
				c.s.take("n1")
				r.Changed(changed)
				start := time.Now()
				r.Await(time.Second)
				require.Equal(t, c.want, time.Since(start))
				require.Len(t, c.s.take("n1"), c.told)
				c.s.mu.Lock()
				c.s.hang = nil
				c.s.mu.Unlock()
				r.Close()
				r.Await(time.Second)
			})
		})
	}
}

// One changed topic is told with the version that it made, though the table may have a later one by then: the next topic's change
// carries that.
func TestSingleTopicCarriesItsVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &servers{}
		r := route.New(config("n1"), s, topics(), nil, slog.New(slog.DiscardHandler))
		r.Start()
		synctest.Wait()
		s.take("n1")
		r.Changed(topic.Change{Updated: []*topic.Config{topic.NewConfig("t1", 8)}, Version: topic.Version{Counter: 6}})
		synctest.Wait()
		calls := s.take("n1")
		require.Len(t, calls, 1)
		require.Contains(t, string(calls[0].cmd.Body), `"counter":6`)
		r.Close()
	})
}
