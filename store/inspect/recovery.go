package inspect

import (
	"fmt"
	"time"

	"github.com/epochmq/epochmq/message"
)

// recovery says what a start would do with the folder as it is.
func (in *inspector) recovery() error {
	say := func(format string, args ...any) {
		in.rep.Recovery = append(in.rep.Recovery, fmt.Sprintf(format, args...))
	}
	if in.rep.Live {
		say("a broker runs on this folder; a second one would be refused. If it were killed now:")
	}
	if in.unclean {
		say("the last run did not end in order: the log is searched for its end")
	} else {
		say("the last run ended in order: the files are taken as they are")
	}
	mark := in.bestMark()
	switch {
	case mark != nil:
		say("the %s mark of %s fits the log: what stands below log offset %d is taken as built", mark.m.Kind,
			time.UnixMilli(mark.m.Time).Format(time.RFC3339), mark.m.LogEnd)
	case len(in.marks) > 0:
		say("no recovery mark can be believed: every queue is opened, and the whole log is dispatched again")
	default:
		say("there is no recovery mark: every queue is opened, and the whole log is dispatched again")
	}
	in.sayLog(mark, say)
	if mark != nil && mark.m.LogEnd < in.log.End {
		say("messages from log offset %d to %d (%d bytes) are dispatched again", mark.m.LogEnd, in.log.End, in.log.End-mark.m.LogEnd)
	}
	behind, missing := int64(0), 0
	for _, q := range in.byName {
		behind += q.behind
		if q.dir == "" {
			missing++
		}
	}
	if behind > 0 {
		say("%d units are added to queues, %d queues are made anew", behind, missing)
	}
	in.sayIndex(mark, say)
	return nil
}

func (in *inspector) sayLog(mark *markFile, say func(string, ...any)) {
	switch {
	case in.log.Segments == 0:
		say("the log is empty")
	case in.log.broken && (mark == nil || int64(mark.m.LogEnd) <= in.log.brokenAt):
		say("the log is broken at %d with records behind it: recovery may cut it there; keep a copy of the folder first", in.log.brokenAt)
	case in.log.broken:
		say("the log is broken at %d, below the mark: records there cannot be read, the log goes on at %d", in.log.brokenAt, in.log.End)
	case in.log.above > 0:
		say("the log ends at %d; %d bytes above it that are not zero are wiped", in.log.End, in.log.above)
	default:
		say("the log ends at %d, nothing is cut", in.log.End)
	}
}

func (in *inspector) sayIndex(mark *markFile, say func(string, ...any)) {
	if !in.unclean || len(in.index.files) == 0 {
		return
	}
	if mark != nil && mark.m.Indexed {
		say("index file %s is taken up to %d keys and completed from log offset %d in the background", mark.m.Index.File, max(mark.m.Index.Count-1, 0),
			max(mark.m.Index.Last, 0))
		return
	}
	safe := int64(0)
	if in.ck != nil {
		safe = in.ck.v.IndexTime
	}
	from := message.LogOffset(0)
	gone := 0
	for _, x := range in.index.files {
		if gone > 0 || x.h.Count <= 1 || x.h.EndTime > safe {
			gone++
		} else {
			from = x.h.EndLog
		}
	}
	if gone > 0 {
		say("%d index files are newer than the checkpoint vouches for: they are deleted and built again from log offset %d in the background", gone, from)
	}
}

// bestMark is the mark that a start would use; nil when there is none.
func (in *inspector) bestMark() *markFile {
	var best *markFile
	for _, m := range in.marks {
		if m.fits && m.usable && (best == nil || m.m.LogEnd >= best.m.LogEnd) {
			best = m
		}
	}
	return best
}
