"""The bank of the demo: tables, existing rows, and typical transactions. Pure: SQL and parameters only.

Both branches number their rows from 1, so equal primary keys meet in the head office. Unique values move
between rows: a customer takes over another's e-mail within one transaction, and a closed account's
number goes to a new account.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random

BankStatement = tuple[str, tuple[object, ...]]

DATABASE = "bank"
BANK_TABLES = ("customers", "accounts", "transfers")
DDL = (
    (
        "CREATE TABLE customers (id INT NOT NULL PRIMARY KEY, email VARCHAR(80) NOT NULL, name "
        "VARCHAR(80) NOT NULL, city VARCHAR(40) NULL, vip TINYINT NOT NULL DEFAULT 0, profile JSON "
        "NULL, changed_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE "
        "CURRENT_TIMESTAMP(3), UNIQUE KEY one_email (email))"
    ),
    (
        "CREATE TABLE accounts (id BIGINT NOT NULL PRIMARY KEY, number CHAR(22) NOT NULL, customer_id INT "
        "NOT NULL, kind ENUM('giro','savings','loan') NOT NULL, balance DECIMAL(15,2) NOT NULL, opened DATE "
        "NOT NULL, UNIQUE KEY one_number (number), KEY by_customer (customer_id))"
    ),
    (
        "CREATE TABLE transfers (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, from_account BIGINT NOT NULL, "
        "to_account BIGINT NOT NULL, amount DECIMAL(12,2) NOT NULL, booked_at DATETIME(3) NOT NULL, "
        "reference VARCHAR(140) NULL)"
    ),
)
CITIES = ("Aachen", "Bonn", "Celle", "Düsseldorf", "Emden", "Fürth", "Görlitz", "Halle", "Jena", "Köln")
FIRST = (
    "Ada",
    "Björn",
    "Chloé",
    "Dörte",
    "Emil",
    "François",
    "Greta",
    "Håkon",
    "Inês",
    "Jürgen",
    "Lucy",
    "Zoë",
)
LAST = (
    "Adler",
    "Bäcker",
    "Curie",
    "Doyle",
    "Ebert",
    "Förster",
    "Gauß",
    "Hertz",
    "Ito",
    "Jansen",
    "Köhler",
    "Müller",
)
PROBES = 1 << 40
"""Transfers of the latency probe have ids from here, so that they never collide with those of the
workload.
"""


@dataclass(slots=True)
class Bank:
    """A branch's workload, with the rows that it remembers."""

    random: Random
    emails: dict[int, str] = field(default_factory=dict)
    accounts: dict[int, str] = field(default_factory=dict)
    transfers: list[int] = field(default_factory=list)
    next_customer: int = 1
    next_account: int = 1
    next_transfer: int = 1

    def seed_customers(self, customers: int) -> Iterator[list[BankStatement]]:
        """Yield transactions that create `customers` customers with two accounts and three transfers each."""
        for _ in range(0, customers, 50):
            yield [statement for _ in range(50) for statement in self.open_customer()]
        for _ in range(0, customers * 3, 50):
            yield [statement for _ in range(50) for statement in self.build_transfer(book=False)]

    def build_transaction(self) -> list[BankStatement]:
        """Return the next transaction of the live workload."""
        kinds, weights = zip(*_MIX, strict=True)
        kind: Callable[[Bank], list[BankStatement]] = self.random.choices(kinds, weights)[0]
        return kind(self)

    def open_customer(self) -> list[BankStatement]:
        customer, self.next_customer = self.next_customer, self.next_customer + 1
        name = f"{self.random.choice(FIRST)} {self.random.choice(LAST)}"
        email = f"{name.split(maxsplit=1)[0].lower()}.{customer}@example.com"
        self.emails[customer] = email
        profile = f'{{"since": {self.random.randint(1980, 2026)}, "score": {self.random.randint(1, 999)}}}'
        insert = "INSERT INTO customers (id, email, name, city, vip, profile) VALUES (%s, %s, %s, %s, %s, %s)"
        row = (customer, email, name, self.random.choice((None, *CITIES)), self.random.randint(0, 1), profile)
        accounts = [statement for _ in range(2) for statement in self.open_account(customer)]
        return [(insert, row), *accounts]

    def open_account(self, customer: int, number: str | None = None) -> list[BankStatement]:
        account, self.next_account = self.next_account, self.next_account + 1
        number = number or f"DE{self.random.randint(10, 99)}{account:018d}"
        self.accounts[account] = number
        row = (
            account,
            number,
            customer,
            self.random.choice(("giro", "savings", "loan")),
            self._pick_amount(),
            self._pick_day(),
        )
        insert = (
            "INSERT INTO accounts (id, number, customer_id, kind, balance, opened) "
            "VALUES (%s, %s, %s, %s, %s, %s)"
        )
        return [(insert, row)]

    def build_transfer(self, *, book: bool = True) -> list[BankStatement]:
        """Move an amount: update two accounts and insert one transfer (`book` False: only insert)."""
        giver, taker = self.random.sample(list(self.accounts), 2)
        transfer, self.next_transfer = self.next_transfer, self.next_transfer + 1
        self.transfers.append(transfer)
        amount = self._pick_amount()
        move = "UPDATE accounts SET balance = balance + %s WHERE id = %s"
        insert = "INSERT INTO transfers VALUES (%s, %s, %s, %s, UTC_TIMESTAMP(3), %s)"
        record: BankStatement = (
            insert,
            (transfer, giver, taker, amount, self.random.choice((None, f"invoice {transfer}"))),
        )
        return [(move, (-amount, giver)), (move, (amount, taker)), record] if book else [record]

    def move_house(self) -> list[BankStatement]:
        customers = self.random.sample(list(self.emails), 3)
        city = self.random.choice(CITIES)
        return [
            ("UPDATE customers SET city = %s, vip = 1 - vip WHERE id = %s", (city, each))
            for each in customers
        ]

    def move_email(self) -> list[BankStatement]:
        """Give one customer's e-mail to another, and the first a new one, in one transaction."""
        giver, taker = self.random.sample(list(self.emails), 2)
        email = self.emails[giver]
        self.emails[giver], self.emails[taker] = (
            f"new.{giver}.{self.random.getrandbits(32)}@example.com",
            email,
        )
        change = "UPDATE customers SET email = %s WHERE id = %s"
        return [(change, (self.emails[giver], giver)), (change, (email, taker))]

    def swap_emails(self) -> list[BankStatement]:
        """Exchange the e-mails of two customers by way of a third value."""
        one, other = self.random.sample(list(self.emails), 2)
        first, second = self.emails[one], self.emails[other]
        self.emails[one], self.emails[other] = second, first
        change = "UPDATE customers SET email = %s WHERE id = %s"
        return [(change, (f"swap.{one}@example.com", one)), (change, (first, other)), (change, (second, one))]

    def reopen_account(self) -> list[BankStatement]:
        """Close an account and give its number to a new one."""
        account = self.random.choice(list(self.accounts))
        number = self.accounts.pop(account)
        customer = self.random.choice(list(self.emails))
        return [("DELETE FROM accounts WHERE id = %s", (account,)), *self.open_account(customer, number)]

    def archive_transfers(self) -> list[BankStatement]:
        """Delete the oldest transfers."""
        old, self.transfers = self.transfers[:3], self.transfers[3:]
        return [("DELETE FROM transfers WHERE id = %s", (each,)) for each in old] or self.build_transfer()

    def _pick_amount(self) -> Decimal:
        return Decimal(self.random.randint(1, 500_000)).scaleb(-2)

    def _pick_day(self) -> str:
        year, month, day = (self.random.randint(*each) for each in ((1990, 2026), (1, 12), (1, 28)))
        return f"{year}-{month:02d}-{day:02d}"


_MIX: tuple[tuple[Callable[[Bank], list[BankStatement]], int], ...] = (
    (Bank.build_transfer, 50),
    (Bank.move_house, 10),
    (Bank.open_customer, 10),
    (Bank.archive_transfers, 15),
    (Bank.move_email, 6),
    (Bank.swap_emails, 4),
    (Bank.reopen_account, 5),
)
