package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agent"
	"github.com/forkd/forkd/internal/guest/agent/forkcmd"
	"github.com/forkd/forkd/internal/guest/agent/handover"
	"github.com/forkd/forkd/internal/guest/agent/initns"
	"github.com/forkd/forkd/internal/guest/agent/inventory"
	"github.com/forkd/forkd/internal/guest/agent/sftpcmd"
)

// ownState is the state of this package in an agent's state.
type ownState struct {
	Listen     string                `json:"listen"`
	TokenFile  string                `json:"token_file"`
	ForkSocket string                `json:"fork_socket"`
	Layers     inventory.SavedLayers `json:"layers"`
}

// update returns how this program is replaced. Only a guest with a host is updated.
func (o options) update() *agent.UpdateConfig {
	return &agent.UpdateConfig{
		Dir: filepath.Dir(forkcmd.Program),
		Exec: func(b *handover.Bundle, program *os.File, state any, ready func() error) error {
			return b.Exec(program, os.Args, os.Environ(), state, ready)
		},
		Own: func(b *handover.Bundle) any {
			return ownState{o.listen, o.tokenFile, o.forkSocket, o.layers.Save(b)}
		},
	}
}

// continueFrom runs the agent in place of an earlier program of this process. The guest has booted
// and stays as it is.
func continueFrom(from *handover.State) error {
	defer from.Close()
	var own ownState
	if err := agent.Own(from, &own); err != nil {
		return err
	}
	o := options{listen: own.Listen, tokenFile: own.TokenFile, ready: true, forkSocket: own.ForkSocket, from: from}
	var err error
	if o.layers, err = inventory.RestoreLayers(from, own.Layers); err != nil {
		return err
	}
	if err := forkcmd.Replace(logf); err != nil {
		logf("commands for forks: %v", err) // those of the old program stay
	}
	if err := sftpcmd.Install(forkcmd.Program); err != nil {
		logf("SFTP server: %v", err)
	}
	if err := initns.Install(forkcmd.Program); err != nil {
		logf("command for inits: %v", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	return serve(ctx, o)
}
