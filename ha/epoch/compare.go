package epoch

import (
	"fmt"

	"github.com/epochmq/epochmq/message"
)

// Kind is what a slave has to do before it may copy.
type Kind uint8

// Kinds of a Verdict.
const (
	Stale  Kind = iota // the master is older than what is known: do not obey it
	Blank              // the log is empty: ask for offset 0
	Keep               // the log is a prefix of the master's: ask for its end
	Cut                // bytes at and above At are not the master's: cut there, at a message boundary, then ask for the end
	Resync             // nothing that is left is the master's: the whole log has to be copied again
)

// String is the kind in words.
func (k Kind) String() string {
	return [...]string{"stale master", "blank", "keep", "cut", "full resync"}[k]
}

// Verdict is the outcome of Compare.
type Verdict struct {
	Kind   Kind
	At     message.LogOffset // of Keep and Cut: end of the common history
	Reason string            // of Stale and Resync
}

// Local is what a slave has.
type Local struct {
	Epochs   List
	Min, End message.LogOffset // of its log
	Known    int32             // epoch of the master as the controller told; None: not told
	Legacy   bool              // obey a master whose list lags behind Known: RocketMQ's own loses epochs without bytes
}

// Master is what its handshake reply says.
type Master struct {
	Epochs List
	Epoch  int32             // its last epoch, None if none
	End    message.LogOffset // of its log
}

// Compare finds the end of the history that a slave shares with its master. Entries of the slave that start at or above its
// end were announced before their bytes came and say nothing.
func Compare(l Local, m Master) Verdict {
	newest := l.Epochs.LastEpoch()
	if !l.Legacy {
		newest = max(newest, l.Known)
	}
	if m.Epoch < newest {
		return Verdict{Kind: Stale, Reason: fmt.Sprintf("it is at epoch %d, epoch %d is known", m.Epoch, newest)}
	}
	if l.End == l.Min {
		return Verdict{Kind: Blank}
	}
	local := l.Epochs.CutOffset(l.End)
	if len(local) == 0 {
		return Verdict{Kind: Resync, Reason: "the log has no history"}
	}
	at, ok := common(local, l.End, m)
	if !ok && len(m.Epochs) > 0 && local[0].Start == m.Epochs[0].Start {
		at, ok = local[0].Start, true // both histories begin there and part at once
	}
	switch {
	case !ok:
		return Verdict{Kind: Resync, Reason: "no epoch in common"}
	case at < l.Min:
		return Verdict{Kind: Resync, Reason: fmt.Sprintf("common history ends at %d, the log starts at %d", at, l.Min)}
	case at == l.End:
		return Verdict{Kind: Keep, At: at}
	}
	return Verdict{Kind: Cut, At: at}
}

// common is the end of the newest entry that both have. The same epoch with another start is left over from an election that
// lost bytes; older entries may still agree.
func common(local List, end message.LogOffset, m Master) (message.LogOffset, bool) {
	for i, j := len(local)-1, len(m.Epochs)-1; i >= 0 && j >= 0; {
		a, b := local[i], m.Epochs[j]
		switch {
		case a.Epoch > b.Epoch:
			i--
		case a.Epoch < b.Epoch:
			j--
		case a.Start != b.Start:
			i, j = i-1, j-1
		default:
			return min(local.end(i), m.Epochs.end(j), end, m.End), true
		}
	}
	return 0, false
}
