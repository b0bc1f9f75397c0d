//go:build !amd64

package stage

import "errors"

func code() ([]byte, error) { return nil, errors.ErrUnsupported }
