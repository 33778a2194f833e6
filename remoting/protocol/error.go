package protocol

import "fmt"

// Error is an answer other than success: a handler returns it to give code and remark to the peer, a client gets it
// from calls that treat such an answer as an error.
type Error struct {
	Code   Code
	Remark string
}

// Errorf makes an Error with a formatted remark.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Remark: fmt.Sprintf(format, args...)}
}

func (e *Error) Error() string {
	return fmt.Sprintf("code %d %s: %s", e.Code, ResponseName(e.Code), e.Remark)
}
