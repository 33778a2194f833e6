package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Version is the newest form of commands that this package writes and reads. A command of a newer form must not be passed
// over: a controller that cannot read it stops.
const Version = 1

// MaxCommand is the size of the largest command in bytes.
const MaxCommand = 1 << 20

// Kind is the type byte of a command.
type Kind uint8

// Kinds of commands.
const (
	KindAlter       Kind = 1
	KindElect       Kind = 2
	KindRegister    Kind = 3
	KindApplyID     Kind = 4
	KindClean       Kind = 5
	KindNoop        Kind = 6
	KindPreregister Kind = 7
)

// Live is what the leader knew of one live broker when it proposed a command.
type Live struct {
	Addr     string `json:"addr,omitempty"`
	Known    bool   `json:"known,omitempty"` // a heartbeat told the rest
	Epoch    int32  `json:"epoch,omitempty"`
	End      int64  `json:"end,omitempty"` // of its log
	Priority int64  `json:"priority,omitempty"`
	Learner  bool   `json:"learner,omitempty"`
}

// Facts is what a decision needs and the state does not hold. The leader captures it when it proposes.
type Facts struct {
	Alive   map[int64]Live `json:"alive,omitempty"`
	Unclean bool           `json:"unclean,omitempty"` // a replica that is not in sync may become master
}

// Command is one of the types below.
type Command interface{ Kind() Kind }

// Alter proposes a new in-sync set, by the master (request 1001).
type Alter struct {
	Broker      string  `json:"broker"`
	Master      int64   `json:"master"`
	MasterEpoch int32   `json:"masterEpoch"`
	Sync        []int64 `json:"sync"`
	SyncEpoch   int32   `json:"syncEpoch"`
	Facts       Facts   `json:"facts"`
}

// Elect asks for a master (request 1002, or a trigger of the controller).
type Elect struct {
	Broker    string `json:"broker"`
	ID        int64  `json:"id"`                  // who asks, or who is wanted; <= 0: the controller
	Designate bool   `json:"designate,omitempty"` // only ID will do
	Facts     Facts  `json:"facts"`
}

// Register says that the process of a replica started (request 1003).
type Register struct {
	Broker  string `json:"broker"`
	ID      int64  `json:"id"`
	Addr    string `json:"addr"`
	Code    string `json:"code,omitempty"` // of the directory, if the broker tells it
	Learner bool   `json:"learner,omitempty"`
	Unclean bool   `json:"unclean,omitempty"` // it may have lost what was not flushed
	Facts   Facts  `json:"facts"`
}

// ApplyID claims an id for a directory (request 1013).
type ApplyID struct {
	Cluster string `json:"cluster"`
	Broker  string `json:"broker"`
	ID      int64  `json:"id"`
	Addr    string `json:"addr"`
	Code    string `json:"code"`
	Reclaim bool   `json:"reclaim,omitempty"` // the directory had this id before the controller lost its data
}

// Clean forgets replicas or a whole set (request 1011).
type Clean struct {
	Cluster string  `json:"cluster"`
	Broker  string  `json:"broker"`
	IDs     []int64 `json:"ids,omitempty"`    // none: the set
	Living  bool    `json:"living,omitempty"` // also live ones
	Facts   Facts   `json:"facts"`
}

// Noop changes nothing.
type Noop struct{}

// Preregister makes ids known before their brokers come, for sets whose ids follow from the configuration.
type Preregister struct {
	Cluster string  `json:"cluster"`
	Broker  string  `json:"broker"`
	IDs     []int64 `json:"ids"`
}

// Kind is the type byte.
func (*Alter) Kind() Kind       { return KindAlter }
func (*Elect) Kind() Kind       { return KindElect }
func (*Register) Kind() Kind    { return KindRegister }
func (*ApplyID) Kind() Kind     { return KindApplyID }
func (*Clean) Kind() Kind       { return KindClean }
func (*Noop) Kind() Kind        { return KindNoop }
func (*Preregister) Kind() Kind { return KindPreregister }

// FormatError says that a command or a snapshot cannot be read.
type FormatError struct {
	What  string
	Newer bool // it is not damaged: a newer program wrote it
}

func (e *FormatError) Error() string { return e.What }

// ErrTooLarge is the error of Encode for a command that would not fit.
var ErrTooLarge = errors.New("the command is too large")

// Encode is the log entry of a command: version byte, kind byte, JSON.
func Encode(c Command) ([]byte, error) {
	b := []byte{Version, byte(c.Kind())}
	body, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode command: %w", err)
	}
	if len(b)+len(body) > MaxCommand {
		return nil, ErrTooLarge
	}
	return append(b, body...), nil
}

// Decode reads a log entry. The error is a *FormatError.
func Decode(b []byte) (Command, error) {
	if len(b) < 2 || len(b) > MaxCommand {
		return nil, &FormatError{What: fmt.Sprintf("a command has %d bytes", len(b))}
	}
	if b[0] == 0 || b[0] > Version {
		return nil, &FormatError{What: fmt.Sprintf("command version %d, this program knows up to %d", b[0], Version), Newer: b[0] > Version}
	}
	var c Command
	switch Kind(b[1]) {
	case KindAlter:
		c = new(Alter)
	case KindElect:
		c = new(Elect)
	case KindRegister:
		c = new(Register)
	case KindApplyID:
		c = new(ApplyID)
	case KindClean:
		c = new(Clean)
	case KindNoop:
		c = new(Noop)
	case KindPreregister:
		c = new(Preregister)
	default:
		return nil, &FormatError{What: fmt.Sprintf("command type %d is unknown", b[1]), Newer: true}
	}
	if err := json.Unmarshal(b[2:], c); err != nil {
		return nil, &FormatError{What: fmt.Sprintf("command of type %d: %v", b[1], err)}
	}
	return c, nil
}

// ids is a list in ascending order without duplicates; the argument stays as it is.
func ids(list []int64) []int64 {
	out := slices.Clone(list)
	slices.Sort(out)
	return slices.Compact(out)
}

func tooLong(texts ...string) bool {
	return slices.ContainsFunc(texts, func(t string) bool { return len(t) > MaxText })
}
