//go:build !linux

package integration

import "errors"

func dirtyBytes(string, int64) (int64, error) { return 0, errors.ErrUnsupported }
