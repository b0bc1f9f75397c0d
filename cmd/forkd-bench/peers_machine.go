package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/peers"
	"github.com/forkd/forkd/internal/machine/appliance"
)

// peersInMachine uploads the peers' root and programs to the machine's data disk, and runs this
// program there.
func (a *app) peersInMachine(ctx context.Context, o peerOptions) (_ []peers.Row, err error) {
	m, err := appliance.Open(a.flags.NameOfMachine())
	if err != nil {
		return nil, err
	}
	agent, err := m.Agent()
	if err != nil {
		return nil, err
	}
	defer agent.Close()
	v := visit{agent: agent, dir: fmt.Sprintf("/var/lib/forkd/.peers-%d", os.Getpid()), there: map[string]string{}}
	defer func() { err = errors.Join(err, v.leave(ctx)) }()
	if err := v.shell(ctx, `mkdir -p "$1"`, v.dir); err != nil {
		return nil, err
	}
	args, err := v.peerArguments(ctx, a, o)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	res, err := appliance.Run(ctx, agent, appliance.Command{Args: args, Dir: "/", Stdout: &out, Stderr: a.Err})
	if err != nil {
		return nil, err
	}
	if res.ExitCode != 0 {
		return nil, fmt.Errorf("race the peers in the machine: %s", res.Status)
	}
	var c contest
	if err := json.Unmarshal(out.Bytes(), &c); err != nil {
		return nil, fmt.Errorf("race the peers in the machine: %w", err)
	}
	return c.Rows, nil
}

// peerArguments uploads the peers' files, and returns the command line to run in the machine.
func (v visit) peerArguments(ctx context.Context, a *app, o peerOptions) ([]string, error) {
	args := []string{"/usr/bin/forkd-bench", "peers", "--here", "--json", "--count", strconv.Itoa(o.n),
		"--memory-mib", strconv.Itoa(o.MemoryMiB)}
	if a.Quiet {
		args = append(args, "--quiet")
	}
	if o.Root != "" {
		a.Note("sending the peers' root to the machine")
		to, err := v.tree(ctx, o.Root)
		if err != nil {
			return nil, err
		}
		args = append(args, "--peer-root", to)
	}
	if o.Firecracker != "" {
		to, err := v.put(ctx, o.Firecracker, path.Join(v.dir, "firecracker"), 0o700)
		if err != nil {
			return nil, err
		}
		args = append(args, "--firecracker", to)
	}
	if o.Image != "" {
		files, err := os.ReadDir(o.Image)
		if err != nil {
			return nil, err
		}
		to := path.Join(v.dir, "image")
		for _, f := range files {
			if _, err := v.put(ctx, filepath.Join(o.Image, f.Name()), path.Join(to, f.Name()), 0o600); err != nil {
				return nil, err
			}
		}
		args = append(args, "--image", to)
	}
	return args, nil
}

// tree uploads a root tree as one file, and unpacks it there.
func (v visit) tree(ctx context.Context, root string) (string, error) {
	f, err := os.CreateTemp("", "forkd-peers-*.tar")
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name())
	if err := errors.Join(peers.PackTree(f, root), f.Close()); err != nil {
		return "", err
	}
	packed, err := v.put(ctx, f.Name(), path.Join(v.dir, "root.tar"), 0o600)
	if err != nil {
		return "", err
	}
	to := path.Join(v.dir, "root")
	return to, v.shell(ctx, `mkdir "$2" && tar -x -f "$1" -C "$2" && rm "$1"`, packed, to)
}
