package fakeengine

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/forkd/forkd/internal/leaf/initprogram"
)

// proc is a running program of the fake guest.
type proc struct {
	ctx            context.Context // ends on a signal, or when the caller disconnects
	args           []string
	env            map[string]string
	user, cwd      string
	stdin          io.Reader
	stdout, stderr io.Writer
	pty            bool
	disk           *disk          // only of exec
	sizes          chan [2]uint32 // of the terminal: columns, rows
	signals        chan int       // numbers of signals
}

// programs returns the fake guest's installed programs. Each returns its exit code.
func programs() map[string]func(*proc) int {
	return map[string]func(*proc) int{
		"echo": func(p *proc) int {
			fmt.Fprintln(p.stdout, strings.Join(p.args, " "))
			return 0
		},
		"warn": func(p *proc) int {
			fmt.Fprintln(p.stderr, strings.Join(p.args, " "))
			return 0
		},
		"cat": func(p *proc) int {
			if _, err := io.Copy(p.stdout, p.stdin); err != nil {
				return 1
			}
			return 0
		},
		"exit":  func(p *proc) int { return number(p.args) },
		"bytes": func(p *proc) int { p.stdout.Write([]byte{0xff, 0xfe, 'a'}); return 0 },
		"spam": func(p *proc) int {
			chunk := strings.Repeat("x", 1<<16)
			for range number(p.args) / len(chunk) {
				io.WriteString(p.stdout, chunk)
			}
			return 0
		},
		"noise": func(p *proc) int { _, _ = io.WriteString(p.stdout, strings.Repeat("\xff", number(p.args))); return 0 },
		"sleep": func(p *proc) int {
			fmt.Fprintln(p.stdout, "sleeping")
			<-p.ctx.Done()
			return 143
		},
		"server": server,
		// The agent's command for inits. It runs its program.
		initprogram.Runner: func(p *proc) int {
			fmt.Fprintln(p.stdout, "init", strings.Join(p.args, " "))
			p.args = []string{"15"}
			return server(p)
		},
		"env":    printEnv,
		"whoami": func(p *proc) int { fmt.Fprintln(p.stdout, p.user); return 0 },
		"pwd":    func(p *proc) int { fmt.Fprintln(p.stdout, p.cwd); return 0 },
		// The agent, when it is run to measure the disk.
		"/proc/1/exe": func(p *proc) int { fmt.Fprintln(p.stdout, "{}"); return 0 },
		"chmod":       func(*proc) int { return 0 },
		"chown":       func(*proc) int { return 0 },
		"rm":          func(p *proc) int { return p.disk.remove(p, false) },
		"rmdir":       func(p *proc) int { return p.disk.remove(p, true) },
		"shell":       shell,
		"sh":          runLine,
	}
}

// runLine runs the one program of sh -c LINE. It knows no quotes and no operators.
func runLine(p *proc) int {
	if len(p.args) != 2 || p.args[0] != "-c" {
		fmt.Fprintln(p.stderr, "sh: want -c LINE")
		return 2
	}
	words := strings.Fields(p.args[1])
	if len(words) == 0 {
		return 0
	}
	run, ok := programs()[words[0]]
	if !ok {
		fmt.Fprintf(p.stderr, "sh: 1: %s: not found\n", words[0])
		return 127
	}
	p.args = words[1:]
	return run(p)
}

// server handles signals. It prints their numbers, and ends with 0 after the one its argument names.
func server(p *proc) int {
	fmt.Fprintln(p.stdout, "up")
	for {
		select {
		case <-p.ctx.Done():
			return 137
		case n := <-p.signals:
			fmt.Fprintln(p.stdout, "signal", n)
			if n == number(p.args) {
				return 0
			}
		}
	}
}

func number(args []string) int {
	if len(args) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(args[0])
	return n
}

func printEnv(p *proc) int {
	var lines []string
	for k, v := range p.env {
		lines = append(lines, k+"="+v)
	}
	slices.Sort(lines)
	for _, line := range lines {
		fmt.Fprintln(p.stdout, line)
	}
	return 0
}

// shell answers each line. "size" waits for a new terminal size and prints it. As on a terminal,
// the input does not end by itself: ^D sends the current line, and ends the input if the line is
// empty.
func shell(p *proc) int {
	fmt.Fprintf(p.stdout, "pty=%v\r\n", p.pty)
	in := bufio.NewReader(p.stdin)
	line := ""
	for {
		b, err := in.ReadByte()
		switch {
		case err != nil && p.pty:
			<-p.ctx.Done() // more input may still come
			return 1
		case err != nil, b == endOfTransmission && line == "":
			return 0
		case b != '\n' && b != endOfTransmission:
			line += string(rune(b))
			continue
		}
		said := strings.TrimSpace(line)
		line = ""
		switch said {
		case "exit":
			return 7
		case "size":
			select {
			case s := <-p.sizes:
				fmt.Fprintf(p.stdout, "%dx%d\r\n", s[0], s[1])
			case <-p.ctx.Done():
			}
		default:
			fmt.Fprintf(p.stdout, "you said %s\r\n", said)
		}
	}
}

// endOfTransmission is ^D.
const endOfTransmission = 4
