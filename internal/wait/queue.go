package wait

// queue holds the entries of one queue, in the order of their last; or, if its
// key is nil, one entry whose place is not known.
type queue struct {
	key   any
	root  *entry
	phase phase
	step  int // while searching: the index of the entry to ask
	at    int // its index in the loop's list
}

// phase says which entry of a queue is asked.
//
// At first that is the oldest, as the others cannot be done before it; and those of which
// it is not certain that they are later. When the oldest is done, the newest is asked:
// often all are done at once, and that costs one question. If it is not, some others may
// be: the oldest is asked again, and as long as the answer is yes later ones, with steps that
// double.
type phase uint8

const (
	resting   phase = iota // the oldest was not done
	newest                 // the oldest was done
	searching              // the newest was asked, or the oldest failed
)

// question is a poll of an entry.
type question struct {
	entry *entry
	queue *queue // of the entry at that time
	leads bool   // the answer says how to go on with the queue
	over  bool
	err   error
}

// questions returns the questions of these queues, in the room of list.
func questions(list []question, queues []*queue) []question {
	clear(list) // what is over must not be kept
	list = list[:0]
	for _, q := range queues {
		if q.root != nil {
			list = q.questions(list)
		}
	}
	return list
}

func (q *queue) placed() bool { return q.key != nil }

// older reports whether q has an entry that certainly comes before one that begins at
// first.
func (q *queue) older(first uint64) bool { return q.placed() && q.root.oldest().last < first }

// questions appends what is to be asked.
func (q *queue) questions(list []question) []question {
	switch {
	case q.phase == newest:
		return append(list, question{entry: q.root.newest(), queue: q, leads: true})
	case q.phase == searching && q.step > 0 && q.root.size > 1:
		q.step = min(q.step, q.root.size-1)
		return append(list, question{entry: q.root.index(q.step), queue: q, leads: true})
	}
	q.step = 0
	n := len(list)
	q.root.from(q.root.oldest().last, func(e *entry) {
		list = append(list, question{entry: e, queue: q, leads: len(list) == n})
	})
	return list
}

// advance goes on after an answer.
func (q *queue) advance(over bool, err error) {
	switch {
	case err != nil:
		q.phase, q.step = searching, 0
	case over && q.phase == resting:
		q.phase = newest
	case over && q.phase == searching:
		q.step = 2*q.step + 1
	case over: // the newest; what was recorded at the same time may be left
		q.phase, q.step = searching, 0
	case q.phase == newest && q.root.size > 1, q.step > 0:
		q.phase, q.step = searching, 0
	default:
		q.phase = resting
	}
}

func (q *queue) insert(e *entry) {
	before, after := q.root.split(e.last, e.number)
	q.root = merge(merge(before, e.single()), after)
}

func (q *queue) remove(e *entry) {
	before, rest := q.root.split(e.last, e.number)
	_, after := rest.split(e.last, e.number+1)
	q.root = merge(before, after)
}

// takeBefore takes out the entries that come before one that begins at first.
func (q *queue) takeBefore(first uint64) (before *entry) {
	before, q.root = q.root.split(first, 0)
	return before
}
