//go:build !linux

package hostnet

import (
	"errors"
	"os"
)

func open(string) (*os.File, error) { return nil, errors.ErrUnsupported }
