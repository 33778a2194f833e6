//go:build !unix

package remoting

// rawWrites says that sockets can be written without waiting.
const rawWrites = false

// rawWriter writes through the stream.
type rawWriter struct{ c *Conn }

func (w *rawWriter) init(c *Conn) { w.c = c }

func (w *rawWriter) try() (again bool, err error) { return true, nil }

func (w *rawWriter) finish() error { return w.c.streamFinish() }

func (in *inBuffer) readStep(uintptr) bool { panic("no raw reads on this system") }
