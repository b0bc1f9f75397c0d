//go:build !linux

package kubebench

import "os/exec"

func bindToParent(*exec.Cmd) {}
