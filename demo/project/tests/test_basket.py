import unittest

from shop.basket import Basket


class BasketTest(unittest.TestCase):
    def test_total_adds_up_all_lines(self) -> None:
        basket = Basket()
        basket.add("pen", 120, 3)
        basket.add("book", 1590)
        self.assertEqual(basket.total(), 1950)

    def test_quantity_must_be_positive(self) -> None:
        with self.assertRaises(ValueError):
            Basket().add("pen", 120, 0)

    def test_discount_is_rounded_once_on_the_whole_amount(self) -> None:
        basket = Basket()
        basket.add("pen", 199)
        self.assertEqual(basket.total(discount_percent=10), 179)

    def test_discount_on_a_round_amount(self) -> None:
        basket = Basket()
        basket.add("lamp", 5000)
        self.assertEqual(basket.total(discount_percent=20), 4000)


if __name__ == "__main__":
    unittest.main()
