package role

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	master3 = Target{Kind: Master, Epoch: 3, MasterID: 1, MasterAddr: "a:1"}
	slave4  = Target{Kind: Slave, Epoch: 4, MasterID: 2, MasterAddr: "b:1"}
)

// finish runs the machine to the end of its steps and lists them.
func finish(m *Machine) (list []Step) {
	for {
		s, t, ok := m.Next()
		if !ok {
			return list
		}
		list = append(list, s)
		m.Done(t, nil)
	}
}

func TestMachine(t *testing.T) {
	var m Machine
	require.Equal(t, Target{}, m.Applied())
	require.Empty(t, finish(&m))

	changed, err := m.Aim(master3)
	require.True(t, changed)
	require.NoError(t, err)
	require.Equal(t, toMaster, finish(&m))
	require.Equal(t, master3, m.Applied())

	for name, late := range map[string]Target{"older epoch": {Kind: Slave, Epoch: 2, MasterID: 2}, "the same": master3, "nothing": {},
		"own address": {Kind: Master, Epoch: 3, MasterID: 1, MasterAddr: "other:1"}} {
		changed, err = m.Aim(late)
		require.False(t, changed, name)
		require.NoError(t, err, name)
	}
	_, err = m.Aim(Target{Kind: Slave, Epoch: 3, MasterID: 2, MasterAddr: "b:1"})
	var conflict *ConflictError
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, master3, m.Applied(), "a second master of the epoch changes nothing")

	changed, err = m.Aim(slave4)
	require.True(t, changed)
	require.NoError(t, err)
	require.Equal(t, Target{}, m.Applied(), "no role is in force during the change")
	require.Equal(t, toSlave, finish(&m))
	moved := slave4
	moved.MasterAddr = "b:2"
	changed, _ = m.Aim(moved)
	require.True(t, changed, "the master came back at another address")
	require.Equal(t, toSlave, finish(&m))

	again := master3
	again.Epoch = 5
	_, _ = m.Aim(again)
	s, target, _ := m.Next()
	m.Done(target, nil)
	m.Done(target, errors.New("disk"))
	restart, _, _ := m.Next()
	require.Equal(t, s, restart, "a change that failed begins again")
	m.Done(slave4, nil) // of somebody who was overtaken
	s, _, _ = m.Next()
	require.Equal(t, CloseWrites, s)
}

// broker is what the steps of a real one would leave behind.
type broker struct {
	open     bool  // takes writes
	epoch    int32 // of the last durable entry
	led      int32 // leads this epoch, 0: none
	services bool
	follows  string
}

func (b *broker) do(s Step, t Target) {
	switch s {
	case CloseWrites:
		b.open = false
	case EndTerm:
		b.led = 0
	case StopReplication:
		b.follows = ""
	case StopServices:
		b.services = false
	case RecoverTail:
	case BeginEpoch:
		b.epoch = max(b.epoch, t.Epoch)
	case Lead:
		b.led = t.Epoch
	case Follow:
		b.follows = t.MasterAddr
	case StartServices:
		b.services = true
	case OpenWrites:
		b.open = true
	case Announce:
	}
}

// Whatever is asked for, fails or comes late: writes are open only under the epoch whose entry is durable and that is led,
// nobody leads and follows, and epochs grow.
func TestAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m Machine
		var b broker
		masters := map[int32]int64{}
		newest := int32(0)
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			switch rapid.IntRange(0, 3).Draw(t, "event") {
			case 0:
				e := rapid.Int32Range(1, 6).Draw(t, "epoch")
				if masters[e] == 0 {
					masters[e] = rapid.Int64Range(1, 3).Draw(t, "master")
				}
				aim := Target{Kind: Slave, Epoch: e, MasterID: masters[e], MasterAddr: "x:1"}
				if masters[e] == 1 {
					aim = Target{Kind: Master, Epoch: e, MasterID: 1}
				}
				_, err := m.Aim(aim)
				require.NoError(t, err)
				newest = max(newest, e)
				require.Equal(t, newest, m.Target().Epoch)
			default:
				s, target, ok := m.Next()
				if !ok {
					continue
				}
				var err error
				if rapid.IntRange(0, 4).Draw(t, "fails") == 0 {
					err = errors.New("failed")
					if rapid.Bool().Draw(t, "half done") {
						b.do(s, target)
					}
				} else {
					b.do(s, target)
				}
				m.Done(target, err)
			}
			if b.open {
				require.NotZero(t, b.led)
				require.Equal(t, b.epoch, b.led)
				require.True(t, b.services)
			}
			require.False(t, b.led != 0 && b.follows != "")
			if a := m.Applied(); a.Kind == Master {
				require.True(t, b.open && b.led == a.Epoch)
			} else if a.Kind == Slave {
				require.True(t, !b.open && b.led == 0 && !b.services && b.follows == a.MasterAddr)
			}
		}
	})
}

func TestRunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var seen []Step
		failures := 2
		block := make(chan struct{})
		r := NewRunner(func(ctx context.Context, s Step, target Target) error {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, s)
			if s == BeginEpoch && failures > 0 {
				failures--
				return errors.New("disk is slow")
			}
			if s == RecoverTail && target.Epoch == 9 { // hangs until it is overtaken
				mu.Unlock()
				defer mu.Lock()
				close(block)
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}, slog.New(slog.DiscardHandler))
		r.Start()
		defer r.Close()
		require.NoError(t, r.Aim(master3))
		got, err := r.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, master3, got)
		mu.Lock()
		want := append(append(append([]Step(nil), toMaster[:6]...), toMaster[:6]...), toMaster...)
		require.Equal(t, want, seen)
		seen = nil
		mu.Unlock()

		nine := master3
		nine.Epoch = 9
		require.NoError(t, r.Aim(nine))
		<-block
		require.Equal(t, Unknown, r.Applied().Kind)
		ten := slave4
		ten.Epoch = 10
		start := time.Now()
		require.NoError(t, r.Aim(ten))
		got, err = r.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, ten, got)
		require.Zero(t, time.Since(start), "the newer epoch is not held up by a pause")
		require.Equal(t, ten, r.Target())

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, r.Aim(Target{Kind: Master, Epoch: 9}), "an old answer")
		_, err = r.Wait(ctx)
		require.NoError(t, err)
	})
}
