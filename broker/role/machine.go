// Package role changes what a broker is in its set: the master of an epoch, or the slave of one.
//
// The main types are Machine, which knows what is wanted, which step comes next and what is in force, and Runner, the one
// goroutine that carries the steps out. Machine has no clock, disk or socket. The broker says what each step does; the
// controller's answers, or the configuration of a classic set, say what is wanted. The package never decides who is master
// and never talks to anybody.
//
// A change is published after its last step. Each step may be repeated, so a change that failed, or that a newer epoch
// overtook, begins again with the step that closes writes. (ha-controller 2.7, 3.6; I15.)
package role

import "fmt"

// Kind is what a broker is.
type Kind uint8

// Kinds. The zero value is a broker that does not know its role: it takes no writes and serves no reads.
const (
	Unknown Kind = iota
	Master
	Slave
)

// String is the kind in words.
func (k Kind) String() string { return [...]string{"unknown", "master", "slave"}[k] }

// Target is a role that somebody who may decide it wants this broker to have.
type Target struct {
	Kind       Kind
	Epoch      int32  // of the master; in a classic set always 0
	MasterID   int64  // controller id of the master, 0 when unknown
	MasterAddr string // host:port of the master, empty when unknown
}

func (t Target) String() string {
	if t.Kind == Slave {
		return fmt.Sprintf("slave of %s in epoch %d", t.MasterAddr, t.Epoch)
	}
	return fmt.Sprintf("%s of epoch %d", t.Kind, t.Epoch)
}

// Step is one part of a change of role. Each is idempotent.
type Step uint8

// Steps. A change to master takes all of them but Follow; a change to slave those up to StopServices, Follow and Announce.
const (
	CloseWrites     Step = iota // refuse appends; nothing is under way afterwards
	EndTerm                     // fail what waits for replicas, freeze the confirm offset
	StopReplication             // close replication connections in both directions and wait for their goroutines
	StopServices                // end delivery of delayed messages and what else only a master does
	RecoverTail                 // cut half a record, count queue offsets up to the end of the log
	BeginEpoch                  // make the entry of the epoch durable
	Lead                        // begin the term: in-sync set of this broker alone, accept replicas
	Follow                      // copy from the master
	StartServices               // what only a master does
	OpenWrites                  // take appends and reads
	Announce                    // tell name servers and controller
)

var names = [...]string{"close writes", "end the term", "stop replication", "stop services", "recover the tail", "begin the epoch", "lead", "follow",
	"start services", "open writes", "announce"}

// String is the step in words.
func (s Step) String() string { return names[s] }

var (
	toMaster = []Step{CloseWrites, EndTerm, StopReplication, StopServices, RecoverTail, BeginEpoch, Lead, StartServices, OpenWrites, Announce}
	toSlave  = []Step{CloseWrites, EndTerm, StopReplication, StopServices, Follow, Announce}
)

// ConflictError says that two masters were named for one epoch, which a controller never does.
type ConflictError struct{ Have, Want Target }

func (e *ConflictError) Error() string {
	return fmt.Sprintf("a role is refused: %s was asked for while this broker is %s; one epoch has one master, so one of the two answers is not of this controller", e.Want, e.Have)
}

// Machine is the state of a broker's role. It is not safe for concurrent use; Runner guards it.
//
// Invariant: epochs of target never go down, and applied is target or the role before it.
type Machine struct {
	target  Target
	steps   []Step // of target that are not done; empty: target is in force
	applied Target
}

// Aim makes t the target when it is newer than the present one and reports whether anything changed: a higher epoch, a
// first role, or another address of the same master. An older epoch is passed over without an error, since answers may be
// late; a second master of the same epoch is a *ConflictError.
func (m *Machine) Aim(t Target) (bool, error) {
	have := m.target
	switch {
	case t.Kind == Unknown || have.Kind != Unknown && t.Epoch < have.Epoch, t == have:
		return false, nil
	case have.Kind == Unknown || t.Epoch > have.Epoch:
	case t.Kind != have.Kind || t.MasterID != have.MasterID:
		return false, &ConflictError{have, t}
	case t.Kind == Master || t.MasterAddr == "":
		return false, nil // the master's own address does not concern itself
	}
	m.target = t
	m.restart()
	return true, nil
}

// restart begins the steps of the target anew.
func (m *Machine) restart() {
	m.steps = toSlave
	if m.target.Kind == Master {
		m.steps = toMaster
	}
}

// Next is the step to carry out now and for whom; false: nothing is to be done.
func (m *Machine) Next() (Step, Target, bool) {
	if len(m.steps) == 0 {
		return 0, m.target, false
	}
	return m.steps[0], m.target, true
}

// Done says how the step that Next gave ended. It is passed over when t is no longer the target. After an error the
// change begins again.
func (m *Machine) Done(t Target, err error) {
	if t != m.target || len(m.steps) == 0 {
		return
	}
	if err != nil {
		m.restart()
		return
	}
	if m.steps = m.steps[1:]; len(m.steps) == 0 {
		m.applied = m.target
	}
}

// Applied is the role in force; Unknown before the first change has ended and while one is under way.
func (m *Machine) Applied() Target {
	if len(m.steps) > 0 {
		return Target{}
	}
	return m.applied
}

// Target is the role that is wanted, in force or not.
func (m *Machine) Target() Target { return m.target }
