package ipc

// What is nil, or was made by its user, is a mistake. What can say so does, the rest has
// nothing to tell, and there is nothing to close.

func (s *Session) made() bool     { return s != nil && s.link != nil }
func (l *Listener) made() bool    { return l != nil && l.close != nil }
func (p *Producer[T]) made() bool { return p != nil && p.ring != nil }
func (c *Consumer[T]) made() bool { return c != nil && c.ring != nil }

func (s *Session) usable(op string) error {
	return usable(op, s.made(), "session", s == nil, "Accept or Dial")
}

func (l *Listener) usable(op string) error {
	return usable(op, l.made(), "listener", l == nil, "Listen")
}

func (p *Producer[T]) usable(op string) error {
	return usable(op, p.made(), "producer", p == nil, "NewProducer")
}

func (c *Consumer[T]) usable(op string) error {
	return usable(op, c.made(), "consumer", c == nil, "NewConsumer")
}

func usable(op string, made bool, what string, null bool, by string) error {
	switch {
	case made:
		return nil
	case null:
		return invalid(op, "the %s is nil", what)
	}
	return invalid(op, "the %s was not made by %s", what, by)
}

// past is for what is over, or never was.
var past = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()
