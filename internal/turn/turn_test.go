package turn_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/internal/turn"
)

type draft struct{ sum int }

func TestRounds(t *testing.T) {
	present, commits, fail := 0, 0, false
	full := errors.New("disk full")
	r := &turn.Rounds[*draft]{
		Begin: func() *draft { return &draft{present} },
		Commit: func(d *draft) error {
			if fail {
				return full
			}
			commits++
			present = d.sum
			return nil
		},
	}
	t.Run("every change is applied once", func(t *testing.T) {
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				if err := r.Do(func(d *draft) error { d.sum += i; return nil }); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.Equal(t, 199*200/2, present)
		require.LessOrEqual(t, commits, 200)
	})
	t.Run("a refused change is not committed", func(t *testing.T) {
		before, no := commits, errors.New("no")
		require.ErrorIs(t, r.Do(func(*draft) error { return no }), no)
		require.Equal(t, before, commits)
	})
	t.Run("a failed commit leaves the present state", func(t *testing.T) {
		before := present
		fail = true
		require.ErrorIs(t, r.Do(func(d *draft) error { d.sum++; return nil }), full)
		fail = false
		require.Equal(t, before, present)
		require.NoError(t, r.Do(func(d *draft) error { d.sum++; return nil }))
		require.Equal(t, before+1, present)
	})
}
