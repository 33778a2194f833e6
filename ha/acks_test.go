package ha

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/internal/watermark"
	"github.com/epochmq/epochmq/message"
)

func TestAcks(t *testing.T) {
	at := map[int]message.LogOffset{2: 500, 3: 200}
	var a *Acks
	refresh := func() {
		p := progress{all: 200}
		a.collect(&p, func(n int) (message.LogOffset, bool) { return at[n], at[n] > 0 })
		a.publish(&p)
	}
	a = newAcks(refresh)
	require.Nil(t, a.Mark(0))
	require.Nil(t, a.Mark(1))
	require.EqualValues(t, 500, a.Mark(2).Load(), "what was copied before counts")
	require.EqualValues(t, 200, a.Mark(3).Load())
	require.EqualValues(t, 0, a.Mark(4).Load())
	require.EqualValues(t, 200, a.All().Load())
	require.Same(t, a.Mark(2), a.Mark(2))
	require.Same(t, a.Mark(16), a.Mark(900))

	boom := errors.New("demoted")
	var got []error
	for _, m := range []*watermark.Mark{a.Mark(2), a.All()} {
		m.Add(&watermark.Waiter{At: 1000, Done: func(err error) { got = append(got, err) }})
	}
	a.Fail(boom)
	a.Fail(errors.New("later"))
	require.Equal(t, []error{boom, boom}, got)
	require.Equal(t, boom, a.Mark(5).Err(), "asked for after the end")
	at[2] = 1000
	refresh()
	require.EqualValues(t, 500, a.Mark(2).Load())
}

func TestFlow(t *testing.T) {
	now := time.Unix(1000, 0)
	f := flow{limit: 1000}
	n, _ := f.allow(5000, now)
	require.Equal(t, 1000, n)
	f.add(700, now)
	n, _ = f.allow(5000, now.Add(100*time.Millisecond))
	require.Equal(t, 300, n)
	f.add(300, now)
	n, wait := f.allow(5000, now.Add(300*time.Millisecond))
	require.Zero(t, n)
	require.Equal(t, 700*time.Millisecond, wait)
	n, _ = f.allow(5000, now.Add(time.Second))
	require.Equal(t, 1000, n)
	require.EqualValues(t, 1000, f.rate(now.Add(time.Second)))
	require.EqualValues(t, 0, f.rate(now.Add(time.Minute)))
	n, _ = (&flow{}).allow(5000, now)
	require.Equal(t, 5000, n)
}
