package remoting

import "fmt"

// Mode says where a handler runs.
type Mode struct{ class *Class }

// Inline runs a handler on the connection's loop: it must not block.
var Inline = Mode{}

// Slow runs a handler on a copy of the request, on a goroutine under the limits of class.
func Slow(class *Class) Mode { return Mode{class} }

// Option changes how requests of one code are treated.
type Option func(*route)

// NotOnVIP makes the fast port answer code 3, as if there were no handler.
func NotOnVIP(r *route) { r.notOnVIP = true }

type route struct {
	mode     Mode
	handler  Handler
	notOnVIP bool
}

const denseCodes = 1024

// Mux finds the handler of a request code. It is filled before the first connection and not changed after.
type Mux struct {
	dense    [denseCodes]*route
	sparse   map[int32]*route
	fallback *route
}

// NewMux is a Mux without handlers.
func NewMux() *Mux { return &Mux{sparse: make(map[int32]*route)} }

// Handle sets the handler of a code. A second one for the same code is a mistake of the wiring, and panics.
func (m *Mux) Handle(code int32, mode Mode, h Handler, opts ...Option) {
	r := &route{mode: mode, handler: h}
	for _, o := range opts {
		o(r)
	}
	if m.own(code) != nil {
		panic(fmt.Sprintf("two handlers for request code %d", code))
	}
	if code >= 0 && code < denseCodes {
		m.dense[code] = r
		return
	}
	m.sparse[code] = r
}

// Default sets the handler of all codes that have none. Without one they are answered with code 3.
func (m *Mux) Default(mode Mode, h Handler) { m.fallback = &route{mode: mode, handler: h} }

// Handles says that a code has a handler of its own.
func (m *Mux) Handles(code int32) bool { return m.own(code) != nil }

func (m *Mux) own(code int32) *route {
	if code >= 0 && code < denseCodes {
		return m.dense[code]
	}
	return m.sparse[code]
}

// find is nil when the code is not supported.
func (m *Mux) find(code int32, vip bool) *route {
	r := m.own(code)
	if r == nil {
		r = m.fallback
	}
	if r != nil && vip && r.notOnVIP {
		return nil
	}
	return r
}
