package store

import (
	"context"
	"fmt"
	"time"
)

// deletePatience is how long DeleteTopic waits for messages on their way to the queues.
const deletePatience = 5 * time.Second

// deletion is a topic that is going. Its append ends serve what is still on its way; new ones wait for the end.
type deletion struct {
	ids  map[int32]*Queue
	done chan struct{}
}

// DeleteTopic removes all queues of a topic with their files. Messages that are on their way when it is called go with it.
// A message that is sent afterwards starts a new queue at offset 0.
func (s *Store) DeleteTopic(topic string) error {
	if s.closed.Load() {
		return ErrClosed
	}
	d, first := s.handles.remove(topic)
	if !first { // somebody else is deleting it
		<-d.done
		return nil
	}
	defer s.handles.removed(topic, d)
	if err := s.passDispatch(); err != nil {
		return err
	}
	if err := s.queues.Destroy(topic); err != nil {
		return fmt.Errorf("delete queues of %s: %w", topic, err)
	}
	s.life.Lock()
	running := s.started && !s.closed.Load()
	s.life.Unlock()
	if !running {
		return s.forgetMarks()
	}
	return s.saver.now() // or a start after a kill would take the queues for lost and build them again
}

// passDispatch waits until what was appended so far is in the queues, but not for ever: the confirm offset may stand still.
func (s *Store) passDispatch() error {
	end := s.log.End()
	if err := s.Flush(end); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), deletePatience)
	defer cancel()
	if err := s.d.looked.Wait(ctx, min(int64(end), s.visible())); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}
