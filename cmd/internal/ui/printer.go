package ui

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"golang.org/x/term"
)

// Printer writes a command's results and notes.
type Printer struct {
	Program string // name in front of errors
	// Out receives results. Err receives notes and errors.
	Out, Err io.Writer
	JSON     bool // results as JSON, or with Format as values for the template
	Format   Template
	Quiet    bool // no notes, no progress; lists as bare names
	NoColor  bool // disables colours on terminals
}

// Standard returns the Printer for a program's standard streams.
func Standard(program string) Printer {
	return Printer{Program: program, Out: &Output{File: os.Stdout}, Err: os.Stderr}
}

// Terminal reports whether w is a terminal.
func Terminal(w io.Writer) bool {
	f, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}

// colors reports whether w may get colours.
func (p *Printer) colors(w io.Writer) bool {
	return !p.NoColor && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && Terminal(w)
}

// Value prints one result as indented JSON, or with the template.
func (p *Printer) Value(v any) error {
	if p.Format.Given() {
		return p.Format.print(p, v)
	}
	enc := json.NewEncoder(p.Out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// ValueLine prints one of several results as a line of JSON, or with the template. line is the JSON of
// v.
func (p *Printer) ValueLine(line []byte, v any) error {
	if p.Format.Given() {
		err := p.Format.print(p, v)
		p.Format.headed = true
		return err
	}
	_, err := fmt.Fprintf(p.Out, "%s\n", line)
	return err
}

// Lost returns an error if results could not be written to the standard output.
func (p *Printer) Lost() error {
	o, ok := p.Out.(*Output)
	if !ok || o.Err() == nil {
		return nil
	}
	return fmt.Errorf("results were lost: %w", o.Err())
}

// Note prints a note for the user.
func (p *Printer) Note(format string, args ...any) {
	if !p.Quiet {
		fmt.Fprintf(p.Err, format+"\n", args...)
	}
}

// Line prints one line of a result.
func (p *Printer) Line(format string, args ...any) error {
	_, err := fmt.Fprintf(p.Out, format+"\n", args...)
	return err
}

// Names prints one name per line, or with JSON a list in the field.
func (p *Printer) Names(field string, names []string) error {
	if p.JSON {
		return p.Value(map[string][]string{field: names})
	}
	for _, name := range names {
		if err := p.Line("%s", name); err != nil {
			return err
		}
	}
	return nil
}

// Facts prints names and values, one pair per line. It leaves out empty values.
func (p *Printer) Facts(pairs ...string) error {
	w := tabwriter.NewWriter(p.Out, 0, 8, 2, ' ', 0)
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			fmt.Fprintf(w, "%s\t%s\n", pairs[i], Clean(pairs[i+1]))
		}
	}
	return w.Flush()
}

// Failure prints an error, with advice.
func (p *Printer) Failure(message, hint string) {
	head, tail := p.Program+": ", ""
	if p.colors(p.Err) {
		head, tail = "\x1b[31m"+p.Program+": ", "\x1b[0m"
	}
	fmt.Fprintf(p.Err, "%s%s%s\n", head, CleanLines(message), tail)
	if hint != "" {
		fmt.Fprintf(p.Err, "  hint: %s\n", Clean(hint))
	}
}

// Clean makes a string safe for a terminal and for one cell of a table.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return keep(r)
	}, strings.ToValidUTF8(s, "?"))
}

// CleanLines is Clean for text of several lines.
func CleanLines(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		return keep(r)
	}, strings.ToValidUTF8(s, "?"))
}

// keep drops characters a terminal would take as a command.
func keep(r rune) rune {
	if r < ' ' || r >= 0x7f && r < 0xa0 {
		return -1
	}
	return r
}
