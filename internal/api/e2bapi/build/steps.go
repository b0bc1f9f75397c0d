package build

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
)

// step runs a step and returns the context of the following steps.
func (j *job) step(ctx context.Context, g *guest, number int, s Step, c Context) (Context, error) {
	switch s.Type {
	case stepRun:
		return c, j.runStep(ctx, g, number, s, c)
	case stepCopy:
		if err := j.copyStep(ctx, g, s, c); err != nil {
			return c, fmt.Errorf("failed to copy '%s' to '%s': %s", s.Args[0], s.Args[1], explain(err))
		}
		return c, nil
	case stepEnv:
		next, err := envStep(ctx, g, s, c)
		if err != nil {
			err = fmt.Errorf("failed to evaluate environment variables: %s", explain(err))
		}
		return next, err
	case stepWorkdir:
		dir, err := workdirStep(ctx, g, s.Args[0], c)
		if err != nil {
			return c, fmt.Errorf("failed to create workdir: %s", explain(err))
		}
		c.Workdir = dir
		return c, nil
	}
	if err := userStep(ctx, g, s); err != nil {
		return c, fmt.Errorf("failed to create user: %s", explain(err))
	}
	c.User = s.Args[0]
	return c, nil
}

// runStep runs a command and logs its output as it comes.
func (j *job) runStep(ctx context.Context, g *guest, number int, s Step, c Context) error {
	if u := s.arg(1); u != "" {
		c.User = u
	}
	name := strconv.Itoa(number)
	_, err := g.run(ctx, shell(s.Args[0], c, func(stream, line string) {
		j.log.output(name, fmt.Sprintf("%s [%s]: %s", j.prefix(number), stream, line))
	}))
	if err != nil {
		return fmt.Errorf("failed to run command '%s': %s", s.Args[0], explain(err))
	}
	return nil
}

// envStep adds variables. In a value, $NAME and ${NAME} are the values a program would see. \$ is a
// dollar sign.
func envStep(ctx context.Context, g *guest, s Step, c Context) (Context, error) {
	var seen map[string]string
	for i := 0; i+1 < len(s.Args); i += 2 {
		value := s.Args[i+1]
		if strings.Contains(value, "$") {
			if seen == nil {
				out, err := g.run(ctx, shell("env -0", c, nil))
				if err != nil {
					return c, err
				}
				seen = parseEnv(out)
			}
			value = expand(value, seen)
			seen[s.Args[i]] = value
		}
		c = c.with(map[string]string{s.Args[i]: value})
	}
	return c, nil
}

func parseEnv(out string) map[string]string {
	env := map[string]string{}
	for line := range strings.SplitSeq(out, "\x00") {
		if k, v, ok := strings.Cut(line, "="); ok {
			env[k] = v
		}
	}
	return env
}

// expand replaces variables in a value. Other text stays.
func expand(value string, env map[string]string) string {
	const dollar = "\x00" // no argument contains it
	out := os.Expand(strings.ReplaceAll(value, `\$`, dollar), func(name string) string {
		if len(name) == 1 && !isLetter(name[0]) {
			return dollar + name
		}
		return env[name]
	})
	return strings.ReplaceAll(out, dollar, "$")
}

func isLetter(c byte) bool { return c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z' }

// ids holds a guest user's IDs, and the folder in which its programs start.
type ids struct {
	uid, gid int
	dir      string
}

// who returns the user that programs run as.
func who(ctx context.Context, g *guest, c Context) (ids, error) {
	c.Workdir = ""
	out, err := g.run(ctx, command{args: []string{"/bin/sh", "-c", "id -u; id -g; pwd"}, as: c})
	if err != nil {
		return ids{}, err
	}
	return parseIDs(out)
}

func parseIDs(out string) (ids, error) {
	parts := strings.SplitN(out, "\n", 3)
	if len(parts) < 3 {
		return ids{}, fmt.Errorf("a user's ids are %q", out)
	}
	uid, err := strconv.Atoi(parts[0])
	if err != nil {
		return ids{}, fmt.Errorf("a user's ids are %q", out)
	}
	gid, err := strconv.Atoi(parts[1])
	if err != nil {
		return ids{}, fmt.Errorf("a user's ids are %q", out)
	}
	return ids{uid, gid, strings.TrimSuffix(parts[2], "\n")}, nil
}

// makeWorkdir creates a folder and its missing parents for the user, and prints its path.
const makeWorkdir = `set -e
if [ ! -d "$1" ]; then
	new=$1
	while above=$(dirname "$new"); [ ! -d "$above" ]; do new=$above; done
	mkdir -p "$1"
	chown -R "$2" "$new"
fi
cd "$1" && pwd`

func workdirStep(ctx context.Context, g *guest, dir string, c Context) (string, error) {
	user, err := who(ctx, g, c)
	if err != nil {
		return "", err
	}
	if !path.IsAbs(dir) {
		dir = path.Join("/", c.Workdir, dir)
	}
	out, err := g.run(ctx, script(makeWorkdir, dir, fmt.Sprintf("%d:%d", user.uid, user.gid)))
	return strings.TrimSuffix(out, "\n"), err
}

// makeUser creates a missing account. If the second argument is "true", the account may do
// everything.
//
//go:embed adduser.sh
var makeUser string

func userStep(ctx context.Context, g *guest, s Step) error {
	_, err := g.run(ctx, script(makeUser, s.Args[0], s.arg(1)))
	return err
}
