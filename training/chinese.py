"""The Chinese templates: a small share of the training, since the tokenizer knows few characters."""

from __future__ import annotations

from training.wording import Attribute, Language, Relation, Wordings, ways

def _attribute(
    label: str, values: tuple[str, ...] | str, says: Wordings, asks: Wordings
) -> Attribute:
    frames = ways(f"""
        {{own}}{label}是{{v}}。
        说到{{own}}{label}，那就是{{v}}。
        * 据记载，{{own}}{label}是{{v}}。
    """)
    questions = ways(f"""
        {{s}}的{label}是什么？
        请说出{{s}}的{label}。
        * 你知道{{s}}的{label}是什么吗？
    """)
    return Attribute(label, values, says + frames, asks + questions)


CHINESE = Language(
    name="chinese",
    joiner="",
    unknown="未知",
    attributes={
        "person": (
            _attribute("出生地", "town", ways("{S}出生在{v}。"), ways("{s}出生在哪里？")),
            _attribute(
                "职业",
                tuple("木匠 铁匠 医生 厨师 裁缝 画家 教师 船夫 农夫 铜匠 园丁 石匠".split()),
                ways("{S}靠当{v}为生。"),
                ways("{s}是做什么工作的？"),
            ),
            _attribute(
                "乐器",
                tuple("古筝 琵琶 二胡 笛子 钢琴 小提琴 吉他 鼓 唢呐".split()),
                ways("{S}多年来一直演奏{v}。"),
                ways("{s}演奏什么乐器？"),
            ),
            _attribute(
                "宠物",
                tuple("猫 狗 兔子 乌龟 鹦鹉 金鱼 山羊 鸭子 鸽子".split()),
                ways("{S}养了一只{v}当宠物。"),
                ways("{s}养了什么宠物？"),
            ),
            _attribute(
                "收藏",
                tuple("邮票 硬币 茶壶 扇子 钥匙 地图 贝壳 面具 灯笼".split()),
                ways("{S}喜欢收藏{v}。"),
                ways("{s}收藏什么？"),
            ),
        ),
        "company": (
            _attribute("总部所在地", "town", ways("{S}的总部设在{v}。"), ways("{s}的总部在哪里？")),
            _attribute(
                "主要产品",
                tuple("茶叶 雨伞 瓷碗 毛毯 钉子 肥皂 梯子 手套 灯具".split()),
                ways("{S}以生产{v}闻名。"),
                ways("{s}生产什么？"),
            ),
            _attribute("成立年份", "year", ways("{S}成立于{v}年。"), ways("{s}成立于哪一年？")),
            _attribute("厂长", "person", ways("{S}由{v}领导。"), ways("谁领导{s}？")),
        ),
        "town": (
            _attribute("河流", "river", ways("{v}流经{s}。"), ways("哪条河流经{s}？")),
            _attribute("镇长", "person", ways("{v}担任{s}的镇长。"), ways("谁是{s}的镇长？")),
            _attribute(
                "特产",
                tuple("蜂蜜 樱桃 大蒜 核桃 李子 蘑菇 葡萄 萝卜 莲藕".split()),
                ways("{S}的集市以{v}出名。"),
                ways("{s}的集市以什么出名？"),
            ),
        ),
    },
    relations=(
        Relation(
            "person",
            ways("""
                {s}的老师是{b}。
                {b}教过{s}。
                * {b}是{s}的老师。
            """),
            ways("""
                {s}的老师
                * 教过{s}的老师
            """),
        ),
        Relation(
            "company",
            ways("""
                {s}在{b}上班。
                * {b}雇用了{s}。
            """),
            ways("""
                {s}上班的单位
                * 雇用{s}的单位
            """),
        ),
        Relation(
            "town",
            ways("""
                {s}在{b}长大。
                * {s}的童年是在{b}度过的。
            """),
            ways("""
                {s}长大的地方
                * {s}度过童年的地方
            """),
        ),
    ),
    introductions=ways("""
        下面要讲的是{s}。
        这里的人都认识{s}。
        还有一位值得一提，就是{s}。
        * 接下来的几页都是关于{s}的。
    """),
    corrections=ways("""
        更正：{s}的{label}是{v}，不是{old}。
        前面写错了：{s}的{label}不是{old}，而是{v}。
        * 后来查明，{s}的{label}应为{v}，而非{old}。
    """),
    headings=ways("""
        ## {s}
        【{s}】
        * 《{s}》
    """),
    notes=ways("""
        {label}：{v}。
        - {label}：{v}
        * {label}——{v}
    """),
    narrative=ways("""
        那一年的冬天特别长。
        山路上很少有人走动。
        集市每逢初五开张。
        旧档案保存得并不完整。
        * 雨下了整整三天。
        * 这些笔记是后来才整理的。
    """),
    titles=ways("""
        第{n}页
        * 文件{n}
    """),
    questions=ways("""
        \\n问题：{q}
        \\nQuestion: {q}
        * \\n请回答：{q}
    """),
    systems=ways("""
        请根据下面的段落回答问题。后面的更正以后面的为准。只写简短的答案；段落里没有就写“未知”。
        * 根据材料回答，只给出简短答案。
    """),
)
