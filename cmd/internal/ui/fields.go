package ui

import (
	"fmt"
	"strings"
	"text/template/parse"
)

// scope holds the forms of $ and of the dot at a place in a template.
type scope struct{ root, dot shape }

// check reports the first field of a template the value does not have. It follows if, with and range.
// It accepts expressions of an unknown form.
func check(n parse.Node, in scope) error {
	switch n := n.(type) {
	case *parse.ListNode:
		if n == nil {
			return nil
		}
		for _, child := range n.Nodes {
			if err := check(child, in); err != nil {
				return err
			}
		}
	case *parse.ActionNode:
		return check(n.Pipe, in)
	case *parse.PipeNode:
		for _, c := range n.Cmds {
			for _, arg := range c.Args {
				if err := check(arg, in); err != nil {
					return err
				}
			}
		}
	case *parse.FieldNode:
		_, err := in.dot.follow(n.Ident)
		return err
	case *parse.VariableNode:
		if n.Ident[0] == "$" {
			_, err := in.root.follow(n.Ident[1:])
			return err
		}
	case *parse.IfNode:
		return checkBranch(n.BranchNode, in, in)
	case *parse.WithNode:
		return checkBranch(n.BranchNode, in, scope{in.root, in.of(n.Pipe)})
	case *parse.RangeNode:
		return checkBranch(n.BranchNode, in, scope{in.root, in.of(n.Pipe).elements()})
	}
	return nil
}

func checkBranch(n parse.BranchNode, outer, inner scope) error {
	if err := check(n.Pipe, outer); err != nil {
		return err
	}
	if err := check(n.List, inner); err != nil {
		return err
	}
	return check(n.ElseList, outer)
}

// of returns the form of a pipeline that is only a field.
func (in scope) of(p *parse.PipeNode) (out shape) {
	if len(p.Cmds) != 1 || len(p.Cmds[0].Args) != 1 {
		return shape{}
	}
	switch n := p.Cmds[0].Args[0].(type) {
	case *parse.DotNode:
		return in.dot
	case *parse.FieldNode:
		out, _ = in.dot.follow(n.Ident)
	case *parse.VariableNode:
		if n.Ident[0] == "$" {
			out, _ = in.root.follow(n.Ident[1:])
		}
	}
	return out
}

// elements returns the form of the values a range visits.
func (s shape) elements() shape {
	if e := s.element(); e != s {
		return e
	}
	if s.t != nil && !s.object() {
		of, _ := s.field("")
		return of
	}
	return shape{}
}

// follow returns the form of a field of a field.
func (s shape) follow(names []string) (shape, error) {
	for i, name := range names {
		of, known := s.field(name)
		if !known {
			return shape{}, s.unknown(names[:i], name)
		}
		s = of
	}
	return s, nil
}

// unknown returns the error for an unknown field of the object at a path.
func (s shape) unknown(path []string, name string) error {
	at := "the result"
	if len(path) > 0 {
		at = "." + strings.Join(path, ".")
	}
	var names []string
	for _, f := range s.fields() {
		names = append(names, f.name)
	}
	if len(names) == 0 {
		return fmt.Errorf("%s has no field %q; it has no fields", at, name)
	}
	return fmt.Errorf("%s has no field %q; its fields are %s", at, name, strings.Join(names, ", "))
}
