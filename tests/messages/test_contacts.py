"""Messages by pair and round."""

from ddlsim.network.messages.message import PUSH, Contacts, Message


def push(src, dst, round_num, payload_bytes=100):
    return Message(src, dst, round_num, PUSH, {}, payload_bytes, 10)


def test_messages_and_bytes_are_added_per_round_and_pair():
    contacts = Contacts()
    contacts.count([push(1, (0, 2), 0), push(0, (1,), 0, 50), push(1, (0,), 0), push(2, (0,), 1)])
    assert contacts.take() == [
        {"round": 1, "src": [0, 1, 1], "dst": [1, 0, 2], "messages": [1, 2, 1], "bytes": [60, 220, 110]},
        {"round": 2, "src": [2], "dst": [0], "messages": [1], "bytes": [110]},
    ]


def test_message_from_a_node_to_itself_is_not_counted():
    contacts = Contacts()
    contacts.count([push(1, (1,), 0)])
    assert contacts.take() == []


def test_only_completed_rounds_are_returned_and_late_messages_follow():
    contacts = Contacts()
    contacts.count([push(0, (1,), 0), push(0, (1,), 1)])
    assert [row["round"] for row in contacts.take(1)] == [1]
    contacts.count([push(1, (0,), 0)])
    assert [(row["round"], row["src"]) for row in contacts.take(2)] == [(1, [1]), (2, [0])]
    assert contacts.take() == []
